//! Making certificates.

use jiff::ToSpan as _;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// A certificate that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("could not make the certificate of {subject}; names must be DNS names or IP addresses")]
pub struct CertificateError {
    subject: String,
    source: rcgen::Error,
}

/// A certificate and its key, in PEM.
#[derive(Debug)]
pub(super) struct Signed {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// Everything that an installation needs, in PEM.
#[derive(Debug)]
pub struct Set {
    pub(super) service: Signed,
    pub(super) service_authority: String,
    pub(super) client: Signed,
    pub(super) client_authority: String,
    pub(super) api: Signed,
    pub(super) api_authority: String,
}

impl Set {
    /// Makes one: the service's certificate for `names`, the aggregated API's for `api_name`.
    ///
    /// # Errors
    /// A name is none.
    pub fn make(names: &[String], api_name: &str, days: i64) -> Result<Self, CertificateError> {
        let service_authority = Authority::make("allocator-tls-ca", days)?;
        let client_authority = Authority::make("allocator-client-ca", days)?;
        let api_authority = Authority::make("berth-allocation-api-ca", days)?;
        let server = ExtendedKeyUsagePurpose::ServerAuth;
        Ok(Self {
            service: service_authority.sign("allocator", names, server.clone(), days)?,
            client: client_authority.sign(
                "allocator-client",
                &[],
                ExtendedKeyUsagePurpose::ClientAuth,
                days,
            )?,
            api: api_authority.sign("allocation-api", &[api_name.to_owned()], server, days)?,
            service_authority: service_authority.pem,
            client_authority: client_authority.pem,
            api_authority: api_authority.pem,
        })
    }
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn make(subject: &str, days: i64) -> Result<Self, CertificateError> {
        let failed = |source| CertificateError { subject: subject.to_owned(), source };
        let mut params = params(subject, &[], days).map_err(failed)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(failed)?;
        let pem = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    fn sign(
        &self,
        subject: &str,
        names: &[String],
        usage: ExtendedKeyUsagePurpose,
        days: i64,
    ) -> Result<Signed, CertificateError> {
        let failed = |source| CertificateError { subject: subject.to_owned(), source };
        let mut params = params(subject, names, days).map_err(failed)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?.pem();
        Ok(Signed { certificate, key: key.serialize_pem() })
    }
}

fn params(subject: &str, names: &[String], days: i64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    let today = berth_runtime::clock::now().to_zoned(TimeZone::UTC).date();
    // Clocks differ: from yesterday on, and through the whole of the last day.
    let midnight = |date: Date| {
        date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = midnight(today.saturating_sub(1.day()));
    params.not_after = midnight(today.saturating_add((days + 1).days()));
    Ok(params)
}
