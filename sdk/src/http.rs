//! HTTP requests of a handler.
//!
//! They go through `wasi:http`, to where the manifest allows (`[allow] http`) and nowhere else. A module that sends none does not
//! import it.

#[cfg(target_family = "wasm")]
#[rustfmt::skip]
#[allow(
    unreachable_pub,
    dead_code,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated from wit/wasi; a test compares it with what the generator gives"
)]
mod bindings;
mod date;
mod error;
mod redirect;
mod request;
mod response;
mod url;
#[cfg(target_family = "wasm")]
mod wasi;

pub use error::HttpError;
pub use request::Request;
pub(crate) use request::Sent;
pub use response::Response;
pub(crate) use url::Url;
#[cfg(target_family = "wasm")]
pub(crate) use wasi::exchange;

use crate::Context;

/// Sends HTTP requests: [`Context::http`].
///
/// ```
/// use hourhand_sdk::prelude::*;
///
/// #[derive(Deserialize)]
/// struct Order {
///     state: String,
/// }
///
/// #[handler]
/// fn look(ctx: &Context, order_id: u64) -> Result<String, Failure> {
///     let response = ctx
///         .http()
///         .get(format!("https://orders.example.com/{order_id}"))
///         .header("accept", "application/json")
///         .timeout(seconds(5))
///         .send()?;
///     match response.status() {
///         404 => Err(Failure::permanent("no such order")),
///         429 => Err(Failure::snooze(response.retry_after().unwrap_or(minutes(1)))),
///         _ => Ok(response.error_for_status()?.json::<Order>()?.state),
///     }
/// }
///
/// let host = TestHost::new().http(|request| match request.url.as_str() {
///     "https://orders.example.com/7" => Answer::new(200).body(r#"{"state":"paid"}"#),
///     _ => Answer::new(404),
/// });
/// let run = host.run::<look>("7");
/// assert_eq!(run.result::<String>(), "paid");
/// assert_eq!(run.requests[0].method, "GET");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Http(());

impl Context {
    /// The outside world, as far as the manifest allows it.
    pub fn http(&self) -> Http {
        Http(())
    }
}

impl Http {
    /// A request with the method GET.
    pub fn get(&self, url: impl AsRef<str>) -> Request {
        self.request("GET", url)
    }

    /// A request with the method POST.
    pub fn post(&self, url: impl AsRef<str>) -> Request {
        self.request("POST", url)
    }

    /// A request with the method PUT.
    pub fn put(&self, url: impl AsRef<str>) -> Request {
        self.request("PUT", url)
    }

    /// A request with the method PATCH.
    pub fn patch(&self, url: impl AsRef<str>) -> Request {
        self.request("PATCH", url)
    }

    /// A request with the method DELETE.
    pub fn delete(&self, url: impl AsRef<str>) -> Request {
        self.request("DELETE", url)
    }

    /// A request with the method HEAD.
    pub fn head(&self, url: impl AsRef<str>) -> Request {
        self.request("HEAD", url)
    }

    /// A request with any method, written as it goes out. The URL begins with `https://` or `http://`.
    pub fn request(&self, method: impl Into<String>, url: impl AsRef<str>) -> Request {
        Request::new(method.into(), url.as_ref())
    }
}
