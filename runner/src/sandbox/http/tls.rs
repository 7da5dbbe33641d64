//! Whom to trust over TLS: the authorities of this machine (`SSL_CERT_FILE` and `SSL_CERT_DIR` count).

use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, Error, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wasmtime_wasi_http::Error as HttpError;

use super::fault::Fault;
use super::target::{Host, Target};

/// How all jobs speak TLS. Blocking: reads files.
///
/// # Errors
/// Why nobody can.
pub(super) fn config() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let (taken, _unreadable) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if taken == 0 {
        return Err(
            "this machine has no certificates of authorities: install ca-certificates, or name a file of \
                    them in SSL_CERT_FILE, and restart the runner"
                .to_owned(),
        );
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Jobs share no sessions either.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// TLS over `stream`, with whoever can prove to be the target.
pub(super) async fn handshake(
    config: Arc<ClientConfig>,
    target: &Target,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, Fault> {
    let name = match &target.host {
        Host::Address(address) => ServerName::from(*address),
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_| {
            Fault::new(HttpError::HttpRequestUriInvalid, "no certificate can be for this name")
        })?,
    };
    TlsConnector::from(config).connect(name, stream).await.map_err(|error| explained(&error))
}

fn explained(error: &io::Error) -> Fault {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let code = match tls {
        Some(Error::InvalidCertificate(_)) => HttpError::TlsCertificateError,
        Some(Error::AlertReceived(alert)) => HttpError::TlsAlertReceived {
            alert_id: Some(u8::from(*alert)),
            alert_message: Some(format!("{alert:?}")),
        },
        Some(_) => HttpError::TlsProtocolError,
        None => HttpError::ConnectionTerminated,
    };
    Fault::new(code, &format!("TLS: {error}"))
}
