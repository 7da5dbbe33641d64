//! `echo`: its payload, byte for byte.

use hourhand_sdk::prelude::*;

#[handler(keep_results = true)]
fn echo(payload: Vec<u8>) -> Vec<u8> {
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_untouched() {
        for payload in [&b""[..], b" [ 1 ] ", b"{\"b\":1,\"a\":2,\"a\":3}", b"\x00\xff\r\n"] {
            assert_eq!(TestHost::new().run::<echo>(payload).result_bytes(), payload);
        }
    }
}
