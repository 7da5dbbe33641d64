//! Write Hourhand job handlers in Rust.
//!
//! A handler is a function with [`#[handler]`](macro@handler) on it. Built for `wasm32-wasip1` as a
//! `cdylib`, its crate becomes a module that a runner loads from its handlers folder. Each job runs in
//! a fresh instance of the module: nothing that a handler leaves in memory is there for the next job.
//!
//! ```
//! use hourhand_sdk::prelude::*;
//!
//! #[derive(Serialize, Deserialize)]
//! struct CloseOrder {
//!     order_id: u64,
//! }
//!
//! /// Serves jobs of the kind `order_close`.
//! #[handler(timeout = "3s", max_attempts = 5)]
//! fn order_close(ctx: &Context, order: CloseOrder) -> Result<CloseOrder, Failure> {
//!     if order.order_id == 0 {
//!         return Err(Failure::permanent("order ids start at 1"));
//!     }
//!     ctx.info(format_args!("closing order {}, attempt {}", order.order_id, ctx.attempt()));
//!     Ok(order)
//! }
//!
//! // The function stays an ordinary function, and a test host stands in for the runner.
//! let run = TestHost::new().attempt(2).run::<order_close>(r#"{"order_id":7}"#);
//! assert_eq!(run.result_text(), r#"{"order_id":7}"#);
//! assert_eq!(run.logs[0].message, "closing order 7, attempt 2");
//! ```

#![warn(missing_docs)]

mod context;
mod enqueue;
mod failure;
mod handler;
mod host;
pub mod http;
pub mod log;
mod payload;
pub mod prelude;
mod refused;
mod result;
mod spans;
mod state;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

#[cfg(target_family = "wasm")]
#[rustfmt::skip]
#[allow(
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated from wit/job.wit; a test compares it with what the generator gives"
)]
mod bindings;
#[cfg(target_family = "wasm")]
mod guest;
#[cfg(target_family = "wasm")]
mod rt;

pub use context::Context;
pub use enqueue::{Due, Enqueue, IntoPayload, Priority};
pub use failure::{Failure, FailureExt};
pub use handler::Handler;
pub use hourhand_sdk_macros::handler;
pub use http::HttpError;
pub use log::Level;
pub use payload::{FromPayload, Raw};
pub use refused::Refused;
pub use result::{IntoFailure, IntoResult};
pub use spans::{hours, milliseconds, minutes, seconds};
pub use state::State;

/// What the code that `#[handler]` writes calls. No part of the interface.
#[doc(hidden)]
pub mod __private {
    #[cfg(target_family = "wasm")]
    pub use crate::handler::Entry;
    pub use crate::payload::{AnySlot, Slot};
    pub use crate::result::{AnyProblem, AnyReturned, AnyValue, ErrorProblem, Problem, Returned, Value};
}

/// The examples of the handbook are tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/handlers.md")]
struct Handbook;
