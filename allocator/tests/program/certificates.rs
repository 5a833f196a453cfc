//! Certificates of the tests: an authority, and what it signs.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// An authority.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let params = Self::params(name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// An authority below this one.
    pub(crate) fn below(&self, name: &str) -> Self {
        let params = Self::params(name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params
    }

    pub(crate) fn server(&self, names: &[&str]) -> Signed {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.sign(CertificateParams::new(names).expect("names"), ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub(crate) fn client(&self, name: &str) -> Signed {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Signed {
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Signed { certificate, key: key.serialize_pem() }
    }
}

impl Signed {
    /// Writes `tls.crt` and `tls.key`.
    pub(crate) fn write(&self, folder: &Path) {
        fs::create_dir_all(folder).expect("a folder");
        fs::write(folder.join("tls.crt"), &self.certificate).expect("a certificate");
        fs::write(folder.join("tls.key"), &self.key).expect("a key");
    }
}
