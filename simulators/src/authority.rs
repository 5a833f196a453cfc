//! An authority of the simulator's own, and the certificate of its front door.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    #[error("could not make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("could not use the certificate")]
    Use(#[from] rustls::Error),
}

/// What clients have to trust, as PEM, and what the front door shows them.
pub(crate) struct Authority {
    pub(crate) certificate: String,
    pub(crate) front_door: Arc<ServerConfig>,
}

/// An authority that lives as long as this process, and a certificate for these names.
pub(crate) fn make(names: &[String]) -> Result<Authority, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "berth-simulator authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);

    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, "berth-simulator");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let shown = params.signed_by(&key, &issuer)?.der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let front_door = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![shown], key)?;
    Ok(Authority { certificate, front_door: Arc::new(front_door) })
}
