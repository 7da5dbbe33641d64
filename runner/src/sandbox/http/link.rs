//! What modules may import of `wasi:http`.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::p2::bindings::http::types::{self, ErrorCode, HostOutgoingRequest as _, Method};
use wasmtime_wasi_http::{Error, WasiHttpView};

use crate::sandbox::guest::GuestState;

use super::target::AUTHORITY_BYTES_MAX;

const TYPES: &str = "wasi:http/types@0.2.12";
/// Longest method of a request, and its longest path with query, in bytes.
const METHOD_BYTES_MAX: usize = 64;
const PATH_BYTES_MAX: usize = 16 << 10;

/// Adds `wasi:http` to what modules may import.
pub(in super::super) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    linker.allow_shadowing(true);
    let shadowed = shadow(linker);
    linker.allow_shadowing(false);
    shadowed
}

/// Puts our own in place of some of the library's functions.
fn shadow(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    let mut types = linker.instance(TYPES)?;
    // The library's own looks for another type than bodies fail with, and never finds a code: a guest could not tell a response that is
    // too large from one that was cut.
    types.func_wrap("http-error-code", error_code)?;
    // The library keeps what these set for as long as the request lives, whatever its length: the host's memory, which no limit of the
    // job counts, and a request needs no grant until it is sent. A scheme has 64 bytes at most in any case.
    types.func_wrap("[method]outgoing-request.set-method", set_method)?;
    types.func_wrap("[method]outgoing-request.set-authority", set_authority)?;
    types.func_wrap("[method]outgoing-request.set-path-with-query", set_path_with_query)
}

/// What a setter of a request gives: whether it took the value.
type Taken = wasmtime::Result<(Result<(), ()>,)>;

fn set_method(
    mut store: StoreContextMut<'_, GuestState>,
    (request, method): (Resource<types::OutgoingRequest>, Method),
) -> Taken {
    if matches!(&method, Method::Other(name) if name.len() > METHOD_BYTES_MAX) {
        return Ok((Err(()),));
    }
    Ok((store.data_mut().http().set_method(request, method)?,))
}

fn set_authority(
    mut store: StoreContextMut<'_, GuestState>,
    (request, authority): (Resource<types::OutgoingRequest>, Option<String>),
) -> Taken {
    if authority.as_ref().is_some_and(|authority| authority.len() > AUTHORITY_BYTES_MAX) {
        return Ok((Err(()),));
    }
    Ok((store.data_mut().http().set_authority(request, authority)?,))
}

fn set_path_with_query(
    mut store: StoreContextMut<'_, GuestState>,
    (request, path): (Resource<types::OutgoingRequest>, Option<String>),
) -> Taken {
    if path.as_ref().is_some_and(|path| path.len() > PATH_BYTES_MAX) {
        return Ok((Err(()),));
    }
    Ok((store.data_mut().http().set_path_with_query(request, path)?,))
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
