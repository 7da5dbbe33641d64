//! One kind, two handlers. See ../messages.rs.

use hourhand_sdk::prelude::*;

mod first {
    use super::*;

    #[handler]
    fn report() {}
}

#[handler(kind = "report")] //~ symbol `the handler of the kind report` is already defined
fn other_report() {}

fn main() {}
