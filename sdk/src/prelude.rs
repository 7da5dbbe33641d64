//! What almost every handler uses: `use hourhand_sdk::prelude::*;`.

pub use crate::log::{self, Level};
#[cfg(not(target_family = "wasm"))]
pub use crate::testing::{Answer, Outcome, TestHost};
pub use crate::{
    Context, Due, Failure, FailureExt, Handler, HttpError, Priority, Raw, Refused, handler, hours,
    milliseconds, minutes, seconds,
};
pub use serde::{Deserialize, Serialize};
