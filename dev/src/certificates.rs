//! Certificates of a cluster: its authorities, what its daemons show each other, and what its users log in with.
//!
//! An authority is a key and a name. Both are kept in the cluster's folder, so that an opened cluster signs with the
//! same ones.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate or key that could not be made or kept.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The maker says no.
    #[error("could not make the certificate of {subject}")]
    Make {
        /// Whose.
        subject: String,
        /// Why.
        source: rcgen::Error,
    },
    /// The disk says no.
    #[error("could not keep a certificate at {path}")]
    Keep {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A certificate and its key, as PEM text.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Where a certificate and its key are kept.
#[derive(Debug, Clone)]
pub(crate) struct CredentialFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Someone who signs.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    files: CredentialFiles,
}

impl Authority {
    /// The authority that keeps its key in `folder` under this name, made when it is not there.
    pub(crate) fn ensure(folder: &Path, name: &str) -> Result<Self, CertificateError> {
        let files = CredentialFiles::at(folder, name);
        let subject = format!("berth-dev {name}");
        let failed = |source| CertificateError::Make { subject: subject.clone(), source };
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, subject.clone());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        if !files.certificate.exists() {
            let key = KeyPair::generate().map_err(failed)?;
            let certificate = params.self_signed(&key).map_err(failed)?.pem();
            files.keep(&Credentials { certificate, key: key.serialize_pem() })?;
        }
        let Credentials { certificate, key } = files.read()?;
        let key = KeyPair::from_pem(&key).map_err(failed)?;
        Ok(Self { issuer: Issuer::new(params, key), certificate, files })
    }

    /// Its own certificate, as PEM text.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its own files.
    pub(crate) fn files(&self) -> &CredentialFiles {
        &self.files
    }

    /// Signs for a user, who belongs to these groups.
    pub(crate) fn sign_user(&self, user: &str, groups: &[&str]) -> Result<Credentials, CertificateError> {
        self.sign(user, groups, &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Signs for a server that is reached under these names and addresses, and keeps the files in `folder`. Makes
    /// nothing when they are there.
    pub(crate) fn ensure_server(
        &self,
        folder: &Path,
        subject: &str,
        names: &[String],
    ) -> Result<CredentialFiles, CertificateError> {
        let files = CredentialFiles::at(folder, subject);
        if !files.certificate.exists() {
            files.keep(&self.sign(subject, &[], names, ExtendedKeyUsagePurpose::ServerAuth)?)?;
        }
        Ok(files)
    }

    /// As [`Authority::sign_user`], kept in `folder`. Makes nothing when the files are there.
    pub(crate) fn ensure_user(
        &self,
        folder: &Path,
        user: &str,
        groups: &[&str],
    ) -> Result<CredentialFiles, CertificateError> {
        let files = CredentialFiles::at(folder, user);
        if !files.certificate.exists() {
            files.keep(&self.sign_user(user, groups)?)?;
        }
        Ok(files)
    }

    fn sign(
        &self,
        subject: &str,
        groups: &[&str],
        names: &[String],
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Credentials, CertificateError> {
        let failed = |source| CertificateError::Make { subject: subject.to_owned(), source };
        let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.distinguished_name.push(DnType::CommonName, subject);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Credentials { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// A key pair that service account tokens are signed with; the public half is a file of its own.
pub(crate) fn ensure_signing_key(folder: &Path, name: &str) -> Result<CredentialFiles, CertificateError> {
    let files = CredentialFiles {
        certificate: folder.join(format!("{name}.pub")),
        ..CredentialFiles::at(folder, name)
    };
    if !files.certificate.exists() {
        let made = KeyPair::generate();
        let key = made.map_err(|source| CertificateError::Make { subject: name.to_owned(), source })?;
        files.keep(&Credentials { certificate: key.public_key_pem(), key: key.serialize_pem() })?;
    }
    Ok(files)
}

impl CredentialFiles {
    fn at(folder: &Path, name: &str) -> Self {
        let name = name.replace([':', '/'], "-");
        Self { certificate: folder.join(format!("{name}.crt")), key: folder.join(format!("{name}.key")) }
    }

    fn read(&self) -> Result<Credentials, CertificateError> {
        let read = |path: &PathBuf| {
            fs::read_to_string(path).map_err(|source| CertificateError::Keep { path: path.clone(), source })
        };
        Ok(Credentials { certificate: read(&self.certificate)?, key: read(&self.key)? })
    }

    /// The certificate is written last: where it is, the key is too.
    fn keep(&self, credentials: &Credentials) -> Result<(), CertificateError> {
        write_private(&self.key, &credentials.key)?;
        write_private(&self.certificate, &credentials.certificate)
    }
}

/// Writes a file that only its owner reads, whole or not at all.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), CertificateError> {
    let failed = |source| CertificateError::Keep { path: path.to_owned(), source };
    let mut partial = path.as_os_str().to_owned();
    partial.push(".part");
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(&partial)?;
        io::Write::write_all(&mut file, text.as_bytes())?;
        fs::rename(&partial, path)
    };
    write().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let first = Authority::ensure(folder.path(), "ca").unwrap().certificate().to_owned();
        assert_eq!(Authority::ensure(folder.path(), "ca").unwrap().certificate(), first);
    }

    #[test]
    fn a_users_files_are_named_after_the_user_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::ensure(folder.path(), "ca").unwrap();
        let files = authority.ensure_user(folder.path(), "system:node:a", &["system:nodes"]).unwrap();
        let first = files.read().unwrap();
        assert!(files.key.ends_with("system-node-a.key"));
        authority.ensure_user(folder.path(), "system:node:a", &["system:nodes"]).unwrap();
        assert_eq!(files.read().unwrap().key, first.key);
    }
}
