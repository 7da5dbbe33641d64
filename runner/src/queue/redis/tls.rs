//! Whom to trust over TLS: the authorities of this machine (`SSL_CERT_FILE` and `SSL_CERT_DIR` count), so that a
//! company's own is among them; where the machine has none, as in a bare container, the public ones that
//! the client library brings.

use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use redis::{Client, ConnectionInfo, RedisResult, TlsCertificates};
use rustls::RootCertStore;

/// Read once: behind sentinels a client is made for each server that becomes the primary.
static AUTHORITIES: OnceLock<Option<Vec<u8>>> = OnceLock::new();

/// A client for a `rediss://` address. Does not connect.
///
/// # Errors
/// When the address is none that TLS can be spoken with.
pub(super) fn client(info: ConnectionInfo) -> RedisResult<Client> {
    // The library takes the process's provider; that somebody installed one before is no error.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match AUTHORITIES.get_or_init(native_authorities).clone() {
        Some(pem) => Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: Some(pem) }),
        None => Client::open(info),
    }
}

/// This machine's authorities in PEM; `None` when it has none. Those that rustls cannot read are left
/// out, because one of them would spoil all.
fn native_authorities() -> Option<Vec<u8>> {
    let mut pem = String::new();
    for certificate in rustls_native_certs::load_native_certs().certs {
        if RootCertStore::empty().add(certificate.clone()).is_ok() {
            pem.push_str("-----BEGIN CERTIFICATE-----\n");
            pem.push_str(&STANDARD.encode(&certificate));
            pem.push_str("\n-----END CERTIFICATE-----\n");
        }
    }
    (!pem.is_empty()).then(|| pem.into_bytes())
}
