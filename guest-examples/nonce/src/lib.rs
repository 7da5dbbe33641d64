//! `nonce`: tells each execution apart by 16 random bytes; logs them and returns them.

use std::fmt::Write;
use std::time::SystemTime;

use hourhand_sdk::prelude::*;

#[derive(Serialize, Deserialize)]
struct Nonce {
    id: String,
    attempt: u32,
    /// 16 random bytes in hex.
    nonce: String,
    /// The guest's clock, in microseconds since 1970.
    at_us: u64,
}

#[handler]
fn nonce(ctx: &Context) -> Result<Nonce, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    let nonce = bytes.iter().fold(String::with_capacity(32), |mut hex, byte| {
        _ = write!(hex, "{byte:02x}");
        hex
    });
    let since = ctx.now().duration_since(SystemTime::UNIX_EPOCH)?;
    let at_us = since.as_micros().try_into()?;
    ctx.info(format_args!("nonce {} {} {nonce} {at_us}", ctx.id(), ctx.attempt()));
    Ok(Nonce { id: ctx.id().to_owned(), attempt: ctx.attempt(), nonce, at_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_executions_differ() {
        let host = TestHost::new().id("7").attempt(2);
        let (one, two) = (host.run::<nonce>(""), host.run::<nonce>(""));
        let [one, two]: [Nonce; 2] = [one.result(), two.result()];
        assert_eq!((one.id.as_str(), one.attempt, one.nonce.len()), ("7", 2, 32));
        assert_ne!(one.nonce, two.nonce);
    }
}
