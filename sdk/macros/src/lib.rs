//! The `#[handler]` attribute of `hourhand-sdk`: use it from there.
//!
//! `settings.rs` reads the attribute's settings, `signature.rs` the head of the function, and
//! `expand.rs` writes the code. What is wrong with either is said at its own place in the source, all
//! of it at once.

mod expand;
mod settings;
mod signature;

use proc_macro::TokenStream;

/// Makes a function the handler of a kind of job.
///
/// # The function
/// It may take a `&Context` first, and then a payload: any type that implements `Deserialize` is read
/// from JSON, `Vec<u8>`, `&[u8]` and `Raw` take the bytes as they are. Without a payload parameter the
/// job's payload is not looked at. An empty payload reads as JSON's `null`; a payload that does not
/// decode sends the job to the dead letters with the reason `decode`.
///
/// It may return nothing, any type that implements `Serialize` (the result is its JSON), `Vec<u8>`,
/// `&[u8]` or `Raw` (the result is the bytes), or a `Result` of one of these with any error. An error
/// that is not a `Failure` is a retry. `()` and empty bytes are no result.
///
/// # Settings
/// | setting | value | when it is not there |
/// |---|---|---|
/// | `kind` | which jobs it serves: 1 to 128 characters of `A-Z a-z 0-9 _ . -` | the function's name |
/// | `timeout` | wall time of an attempt, `"1ms"` to `"24h"` | 30 s |
/// | `max_attempts` | 1 to 1000, for jobs that do not say | 5 |
/// | `backoff` | `"exp(15s, 1h)"` doubles from the first to the second; `"exp(15s, 1h, 10%)"` also sets the jitter (20 % by default); `"fixed(30s)"`; `"none"` retries at once | `"exp(15s, 1h)"` |
/// | `keep_results` | `true` keeps results over 4 KiB | `false` |
/// | `memory` | memory of a job, `"64KiB"` to `"4GiB"` | 128 MiB |
/// | `http` | where it sends requests, `["https://api.example.com", "https://*.example.com"]` | whatever its manifest grants |
/// | `env` | variables that it looks at, `["MODE"]` | whatever its manifest grants |
/// | `secrets` | secrets that it uses, by name | whatever its manifest grants |
/// | `state` | whether it remembers anything | whatever its manifest grants |
/// | `enqueue` | kinds that it enqueues, `["order_notify", "report_*"]` | whatever its manifest grants |
///
/// The last five grant nothing: a handler reaches what its manifest grants, and of that no more than it says here.
///
/// Spans are numbers with `ms`, `s`, `m`, `h` or `d`: `"250ms"`, `"1m30s"`.
///
/// # Several handlers
/// A crate may have any number of them, in any of its modules, one a kind.
///
/// # What it makes
/// The function stays as it is. Beside it comes a type of the same name that implements `Handler`, for
/// `TestHost::run`; in a module it is also listed for the runner, and its settings are written to
/// the custom section `hourhand.handlers`, one JSON object a line.
#[proc_macro_attribute]
pub fn handler(settings: TokenStream, item: TokenStream) -> TokenStream {
    expand::handler(settings.into(), item.into()).into()
}
