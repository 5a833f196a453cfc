//! The bytes below: TCP with short timers of the kernel, with or without TLS.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::RedisError;
use crate::redis_url::{RedisServer, Transport};

/// Silence after which the kernel asks whether the other end is there, how often, and how many answers may be missing.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);
/// How long what was sent may stay unacknowledged, in milliseconds.
const UNACKNOWLEDGED: u32 = 30_000;

/// A connection with or without TLS.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects. Has no limit of its own.
pub(super) async fn open(server: &RedisServer) -> Result<Stream, RedisError> {
    let failed = |source| RedisError::Connect { server: server.to_string(), source };
    let socket = TcpStream::connect((server.host.as_str(), server.port)).await.map_err(failed)?;
    tune(&socket).map_err(failed)?;
    match &server.transport {
        Transport::Plain => Ok(Stream::Plain(socket)),
        Transport::Tls { server_name, ca_file } => {
            let name = server_name.as_ref().unwrap_or(&server.host);
            let certified = ServerName::try_from(name.clone())
                .map_err(|_| RedisError::ServerName { name: name.clone() })?;
            let connector = TlsConnector::from(Arc::new(configuration(ca_file.as_deref())?));
            let stream = connector.connect(certified, socket).await.map_err(failed)?;
            Ok(Stream::Tls(Box::new(stream)))
        }
    }
}

fn tune(socket: &TcpStream) -> io::Result<()> {
    let (idle, interval, count) = KEEPALIVE;
    socket.set_nodelay(true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, idle)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, count)?;
    sockopt::set_tcp_user_timeout(socket, UNACKNOWLEDGED)?;
    Ok(())
}

fn configuration(ca_file: Option<&Path>) -> Result<ClientConfig, RedisError> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let unusable = |source| RedisError::Authorities { path: path.to_owned(), source };
            for certificate in
                CertificateDer::pem_file_iter(path).map_err(io::Error::other).map_err(unusable)?
            {
                let certificate = certificate.map_err(io::Error::other).map_err(unusable)?;
                roots.add(certificate).map_err(io::Error::other).map_err(unusable)?;
            }
            if roots.is_empty() {
                return Err(unusable(io::Error::other("it holds no certificate")));
            }
        }
        None => {
            // Those of the system that cannot be read are as good as not there.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = |source| RedisError::Connect { server: "any server over TLS".to_owned(), source };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other).map_err(unusable)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
