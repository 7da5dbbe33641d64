//! HMAC-SHA256 by the book (RFC 2104), to check what handlers sign by another hand than theirs.

use sha2::{Digest, Sha256};

const BLOCK: usize = 64;

/// The code of `message` under `key`.
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(block.map(|b| b ^ 0x5c)).chain_update(inner).finalize().into()
}

#[test]
fn it_is_that_of_rfc_4231() {
    let code = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
    assert_eq!(code[..4], [0x5b, 0xdc, 0xc1, 0x46]);
}
