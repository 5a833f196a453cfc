//! Signatures: version 4 of AWS's way to sign requests, checked as AWS checks it.

use http::HeaderMap;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use ring::{digest, hmac};

use crate::world::{Refusal, RefusalKind};

use super::Incoming;

/// How far a client's clock may be off.
const SKEW_SECONDS: i64 = 300;
/// How long the credentials of an instance's role live.
const ROLE_SECONDS: i64 = 3600;
/// What the keys of roles begin with; the rest of the key says when it expires.
const ROLE_KEY: &str = "ASIASIM";
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// What a client signs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

impl Credentials {
    /// Those of an instance's role, as the metadata give them out at `now`. They say themselves when they expire.
    pub(crate) fn of_role(expires: Timestamp) -> Self {
        let stamp = format!("{:016X}", expires.as_second());
        Self {
            access_key: format!("{ROLE_KEY}{stamp}"),
            secret: format!("role-secret-{stamp}"),
            token: Some(format!("role-token-{stamp}")),
        }
    }

    /// When credentials that are given out at `now` expire.
    pub(crate) fn role_expiry(now: Timestamp) -> Timestamp {
        now.saturating_add(jiff::SignedDuration::from_secs(ROLE_SECONDS)).unwrap_or(Timestamp::MAX)
    }
}

/// How strict the door is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// Signatures are verified.
    #[default]
    Verify,
    /// The key, region and service of a signature are read; a missing one passes.
    Read,
}

/// The account's side of signing.
#[derive(Clone, Debug)]
pub(crate) struct Gatekeeper {
    pub(crate) region: String,
    pub(crate) credentials: Vec<Credentials>,
    pub(crate) strictness: Strictness,
}

/// Who asks, once that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) access_key: Option<String>,
}

/// The parts of an authorization header.
#[derive(Debug)]
struct Authorization<'a> {
    access_key: &'a str,
    date: &'a str,
    region: &'a str,
    service: &'a str,
    signed: &'a str,
    signature: &'a str,
}

fn refused(kind: RefusalKind, message: impl Into<String>) -> Refusal {
    Refusal::new(kind, message)
}

impl<'a> Authorization<'a> {
    fn read(header: &'a str) -> Option<Self> {
        let fields = header.strip_prefix("AWS4-HMAC-SHA256")?;
        let field = |name: &str| {
            fields.split(',').find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='))
        };
        let mut scope = field("Credential")?.rsplitn(5, '/');
        let (end, service, region, date) = (scope.next()?, scope.next()?, scope.next()?, scope.next()?);
        let access_key = scope.next()?;
        let (signed, signature) = (field("SignedHeaders")?, field("Signature")?);
        (end == "aws4_request").then_some(Self { access_key, date, region, service, signed, signature })
    }
}

/// The access key that a request names, whether or not it may.
pub(crate) fn named_key(headers: &HeaderMap) -> Option<String> {
    let header = headers.get("authorization")?.to_str().ok()?;
    Authorization::read(header).map(|authorization| authorization.access_key.to_owned())
}

impl Gatekeeper {
    /// Who sent the request, or why nobody believes it. `wall` is real time: clients sign with theirs.
    pub(crate) fn admit(
        &self,
        request: &Incoming,
        service: &str,
        wall: Timestamp,
    ) -> Result<Caller, Refusal> {
        let header = match request.headers.get("authorization") {
            Some(header) => header.to_str().unwrap_or_default(),
            None if self.strictness == Strictness::Read => return Ok(Caller { access_key: None }),
            None => return Err(refused(RefusalKind::Unauthorized, "the request is not signed")),
        };
        let Some(given) = Authorization::read(header) else {
            return Err(refused(RefusalKind::InvalidSignature, "the authorization header is incomplete"));
        };
        for (what, is, should) in
            [("service", given.service, service), ("region", given.region, self.region.as_str())]
        {
            if is != should {
                let message =
                    format!("Credential should be scoped to correct {what}: '{should}', not '{is}'");
                return Err(refused(RefusalKind::InvalidSignature, message));
            }
        }
        if self.strictness == Strictness::Verify {
            let credentials = self.known(given.access_key, request, wall)?;
            verify(&given, &credentials, request, wall)?;
        }
        Ok(Caller { access_key: Some(given.access_key.to_owned()) })
    }

    /// The credentials of a key, if its token goes with it and it has not expired.
    fn known(&self, access_key: &str, request: &Incoming, wall: Timestamp) -> Result<Credentials, Refusal> {
        const UNKNOWN: &str = "The security token included in the request is invalid.";
        let unknown = || refused(RefusalKind::UnrecognizedClient, UNKNOWN);
        let own = self.credentials.iter().find(|one| one.access_key == access_key).cloned();
        let credentials = match own {
            Some(own) => own,
            None => {
                let stamp = access_key.strip_prefix(ROLE_KEY).ok_or_else(unknown)?;
                let seconds = i64::from_str_radix(stamp, 16).map_err(|_| unknown())?;
                let expires = Timestamp::from_second(seconds).map_err(|_| unknown())?;
                if wall >= expires {
                    const EXPIRED: &str = "The security token included in the request is expired";
                    return Err(refused(RefusalKind::ExpiredToken, EXPIRED));
                }
                Credentials::of_role(expires)
            }
        };
        let token = request.headers.get("x-amz-security-token").and_then(|token| token.to_str().ok());
        if token == credentials.token.as_deref() { Ok(credentials) } else { Err(unknown()) }
    }
}

fn verify(
    given: &Authorization<'_>,
    credentials: &Credentials,
    request: &Incoming,
    wall: Timestamp,
) -> Result<(), Refusal> {
    let invalid = |message: &str| refused(RefusalKind::InvalidSignature, message);
    let stamp = request.header("x-amz-date").ok_or_else(|| invalid("the request has no x-amz-date"))?;
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", stamp)
        .ok()
        .and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC).ok())
        .ok_or_else(|| invalid("x-amz-date is no time"))?
        .timestamp();
    let off = wall.as_second() - time.as_second();
    if off > SKEW_SECONDS {
        return Err(invalid(&format!("Signature expired: {stamp} is {off} seconds ago")));
    }
    if off < -SKEW_SECONDS {
        return Err(invalid(&format!("Signature not yet current: {stamp} is {} seconds ahead", -off)));
    }
    if !stamp.starts_with(given.date) {
        return Err(invalid("the scope is of another day than x-amz-date"));
    }
    let names = given.signed.split(';').collect::<Vec<_>>();
    if !["host", "x-amz-date"].iter().all(|name| names.contains(name)) {
        return Err(invalid("host and x-amz-date must be signed"));
    }
    let scope = format!("{}/{}/{}/aws4_request", given.date, given.region, given.service);
    let canonical = hex(digest::digest(&digest::SHA256, canonical(request, &names).as_bytes()).as_ref());
    let to_sign = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{canonical}");
    let mut key = format!("AWS4{}", credentials.secret).into_bytes();
    for part in [given.date, given.region, given.service, "aws4_request"] {
        key = sign(&key, part).as_ref().to_vec();
    }
    if hex(sign(&key, &to_sign).as_ref()) == given.signature {
        return Ok(());
    }
    Err(invalid(
        "The request signature we calculated does not match the signature you provided. \
         Check your AWS Secret Access Key and signing method.",
    ))
}

fn sign(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

/// The request in the one form that both sides sign.
fn canonical(request: &Incoming, names: &[&str]) -> String {
    let mut text = format!("{}\n", request.method);
    // The path is encoded as it was sent, and then once more.
    for segment in request.path.split('/').skip(1) {
        text.push('/');
        text.extend(utf8_percent_encode(segment, UNRESERVED));
    }
    let mut query =
        request.query.split('&').filter(|pair| !pair.is_empty()).map(canonical_pair).collect::<Vec<_>>();
    query.sort();
    text.push_str(&format!("\n{}\n", query.join("&")));
    for name in names {
        let values =
            request.headers.get_all(*name).iter().map(|value| {
                value.to_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
            });
        text.push_str(&format!("{name}:{}\n", values.collect::<Vec<_>>().join(",")));
    }
    let body = digest::digest(&digest::SHA256, &request.body);
    text.push_str(&format!("\n{}\n{}", names.join(";"), hex(body.as_ref())));
    text
}

fn canonical_pair(pair: &str) -> String {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let again = |text: &str| {
        let bytes = percent_decode_str(text).collect::<Vec<_>>();
        percent_encoding::percent_encode(&bytes, UNRESERVED).to_string()
    };
    format!("{}={}", again(name), again(value))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
