//! What almost every handler uses: `use hourhand_sdk::prelude::*;`.

pub use crate::log::{self, Level};
#[cfg(not(target_family = "wasm"))]
pub use crate::testing::{Outcome, TestHost};
pub use crate::{Context, Failure, FailureExt, Handler, Raw, handler, hours, milliseconds, minutes, seconds};
pub use serde::{Deserialize, Serialize};
