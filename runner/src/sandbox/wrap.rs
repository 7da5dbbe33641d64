//! From a core module to a component: the one form that the sandbox runs.

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
    WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wit_component::ComponentEncoder;

use super::facts::Facts;
use super::{LoadError, Role, sections};

/// Names the code that wraps, in cache keys: to be changed with the versions of wit-component and the
/// adapter in Cargo.toml.
pub(super) const WRAPPER: &str = "wit-component 0.254, adapter 48.0.8, wasi 0.2.12";

/// Wraps a core module that says it was built for our world, or a plain command.
pub(super) fn core_module(bytes: &[u8], facts: &Facts, role: Role) -> Result<Vec<u8>, LoadError> {
    let prepared = sections::prepared(bytes, role)?;
    let adapter = match role {
        Role::Handler => WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
        Role::Command => WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
    };
    ComponentEncoder::default()
        .validate(true)
        .module(&prepared)
        .and_then(|encoder| encoder.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, adapter))
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| explained(&format!("{error:#}"), facts, role))
}

fn explained(error: &str, facts: &Facts, role: Role) -> LoadError {
    let first_line = error.lines().next().unwrap_or_default();
    let fix = if role == Role::Command {
        "build it anew for wasm32-wasip1 or wasm32-wasip2"
    } else if error.contains("type mismatch") || error.contains("has type") || error.contains("expected type")
    {
        "its handler has another signature than hourhand:job asks for: build it with the hourhand-sdk of this \
         runner's version"
    } else if error.contains("import") {
        "it imports what the sandbox does not offer: build it for wasm32-wasip1"
    } else {
        "build it anew with the hourhand-sdk of this runner's version"
    };
    let tools = if facts.producers.is_empty() {
        String::new()
    } else {
        format!(" (made by {})", facts.producers.join(", "))
    };
    LoadError::Refused(format!("cannot be wrapped: {first_line}{tools}; {fix}"))
}
