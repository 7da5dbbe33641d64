//! What modules may import of `wasi:http`.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::{Error, WasiHttpView};

use crate::sandbox::guest::GuestState;

const TYPES: &str = "wasi:http/types@0.2.12";

/// Adds `wasi:http` to what modules may import.
pub(in super::super) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    // The library's own looks for another type than bodies fail with, and never finds a code: a guest could not tell a response that is
    // too large from one that was cut.
    linker.allow_shadowing(true);
    let shadowed = linker.instance(TYPES)?.func_wrap("http-error-code", error_code);
    linker.allow_shadowing(false);
    shadowed
}

/// What the failure of a stream means in HTTP's terms.
fn error_code(
    mut store: StoreContextMut<'_, GuestState>,
    (error,): (Resource<wasmtime::Error>,),
) -> wasmtime::Result<(Option<ErrorCode>,)> {
    let view = store.data_mut().http();
    let error = view.table.get(&error)?;
    let code = error.downcast_ref::<ErrorCode>().cloned();
    Ok((code.or_else(|| error.downcast_ref::<Error>().and_then(named)),))
}

/// The code of what a body fails with here; `None` for what only a request fails with.
fn named(error: &Error) -> Option<ErrorCode> {
    match error {
        Error::ConnectionReadTimeout => Some(ErrorCode::ConnectionReadTimeout),
        Error::DestinationUnavailable => Some(ErrorCode::DestinationUnavailable),
        Error::HttpResponseIncomplete => Some(ErrorCode::HttpResponseIncomplete),
        Error::HttpResponseBodySize(size) => Some(ErrorCode::HttpResponseBodySize(*size)),
        Error::HttpProtocolError => Some(ErrorCode::HttpProtocolError),
        _ => None,
    }
}
