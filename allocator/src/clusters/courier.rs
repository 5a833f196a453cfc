//! Calls to the allocator services of other clusters: lines are kept, and what does not answer is left alone for a while.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_api::allocation::AllocationStatus;
use berth_api::allocation::proto::AllocationRequest;
use berth_api::allocation::proto::allocation_service_client::AllocationServiceClient;
use berth_api::allocation_policy::ConnectionInfo;
use berth_runtime::backoff::Backoff;
use berth_runtime::clock::{Clock, Instant};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::time::{sleep, timeout};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};
use tracing::debug;

use super::letter;
use super::metrics::{ClusterMetrics, Outcome};

/// The port of an endpoint that names none.
const PORT: u16 = 443;
/// How long an endpoint that did not answer is left alone.
const REST: Duration = Duration::from_secs(15);
/// How long a line is used before its certificate is read anew.
const LINE_AGE: Duration = Duration::from_secs(300);
/// How often all endpoints of a cluster are tried.
const ROUNDS: u32 = 7;
/// The wait after the first round; it doubles.
const PAUSE: Duration = Duration::from_millis(100);

/// Why another cluster gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CourierError {
    /// The Secret with our certificate there.
    #[error("could not read Secret {namespace}/{name} with the certificate for cluster {cluster:?}")]
    Secret {
        /// The cluster.
        cluster: String,
        /// The Secret's namespace.
        namespace: String,
        /// The Secret's name.
        name: String,
        /// Why.
        source: kube::Error,
    },
    /// The policy, or its Secret, is of no use.
    #[error("cluster {cluster:?} cannot be reached: {what}")]
    Unfit {
        /// The cluster.
        cluster: String,
        /// What is wrong.
        what: String,
    },
    /// It does not answer.
    #[error("cluster {cluster:?} at {endpoint} did not answer: {what}")]
    Silent {
        /// The cluster.
        cluster: String,
        /// Where.
        endpoint: String,
        /// What was seen.
        what: String,
    },
    /// It has not answered lately, and is left alone for a moment.
    #[error("cluster {cluster:?} has not answered lately, and is not asked for a moment")]
    Resting {
        /// The cluster.
        cluster: String,
    },
    /// It will not, or could not.
    #[error("cluster {cluster:?} at {endpoint} answered {code:?}: {message}")]
    Refused {
        /// The cluster.
        cluster: String,
        /// Where.
        endpoint: String,
        /// Its code.
        code: Code,
        /// Its words.
        message: String,
    },
}

/// What another cluster answered.
#[derive(Debug)]
pub(super) enum Reply {
    /// A server of its own.
    Allocated(Box<AllocationStatus>),
    /// It has none.
    Nothing,
    /// Others were faster each time.
    Contention,
}

/// One endpoint, with one certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LineKey {
    namespace: String,
    secret: String,
    server_ca: String,
    endpoint: String,
}

#[derive(Debug, Default)]
struct Line {
    open: Option<(Channel, Instant)>,
    rests_until: Option<Instant>,
}

impl Line {
    /// Still to be used, or still to be left alone.
    fn is_of_use(&self, now: Instant) -> bool {
        self.open.as_ref().is_some_and(|(_, since)| now < *since + LINE_AGE) || self.rests(now)
    }

    fn rests(&self, now: Instant) -> bool {
        self.rests_until.is_some_and(|until| now < until)
    }
}

/// Asks other clusters.
pub struct Courier {
    client: Client,
    clock: Clock,
    /// How long one call may take.
    call_limit: Duration,
    metrics: ClusterMetrics,
    /// Held for one look or one change.
    lines: Mutex<HashMap<LineKey, Line>>,
}

impl Courier {
    /// A courier without lines yet.
    pub fn new(client: Client, call_limit: Duration, metrics: ClusterMetrics) -> Self {
        Self { client, clock: Clock::system(), call_limit, metrics, lines: Mutex::default() }
    }

    /// Asks one cluster, whose policy is in `namespace`, until `deadline`.
    ///
    /// # Errors
    /// It gave no answer, or none that is of use.
    pub(super) async fn ask(
        &self,
        namespace: &str,
        connection: &ConnectionInfo,
        request: &AllocationRequest,
        deadline: Instant,
    ) -> Result<Reply, CourierError> {
        let cluster = || connection.cluster_name.clone();
        let mut last = CourierError::Resting { cluster: cluster() };
        let mut backoff = Backoff::new(PAUSE, PAUSE * 2_u32.pow(ROUNDS));
        for _ in 0..ROUNDS {
            let mut is_worth_a_round = false;
            for endpoint in connection.allocation_endpoints.iter().map(|endpoint| with_port(endpoint)) {
                let key = LineKey {
                    namespace: namespace.to_owned(),
                    secret: connection.secret_name.clone(),
                    server_ca: connection.server_ca.clone(),
                    endpoint,
                };
                if self.rests(&key) {
                    self.metrics.count(Outcome::Skipped);
                    continue;
                }
                let channel = self.line(&key, connection).await?;
                let status = match self.call(channel, request, deadline).await {
                    Ok(response) => {
                        let status = letter::read(response, &key.endpoint);
                        self.metrics.count(status.as_ref().map_or(Outcome::Nothing, |_| Outcome::Allocated));
                        return Ok(status.map_or(Reply::Nothing, |status| Reply::Allocated(Box::new(status))));
                    }
                    Err(status) => status,
                };
                debug!(cluster = connection.cluster_name, endpoint = key.endpoint, %status, "no allocation");
                match status.code() {
                    Code::ResourceExhausted => {
                        self.metrics.count(Outcome::Nothing);
                        return Ok(Reply::Nothing);
                    }
                    Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
                        self.metrics.count(Outcome::Silent);
                        self.hang_up(key.clone(), Some(self.clock.instant() + REST));
                        let what = status.message().to_owned();
                        last = CourierError::Silent { cluster: cluster(), endpoint: key.endpoint, what };
                    }
                    code => {
                        self.metrics.count(Outcome::Refused);
                        is_worth_a_round |= may_change_its_mind(code);
                        if matches!(code, Code::Unauthenticated | Code::PermissionDenied) {
                            // Another certificate may do.
                            self.hang_up(key.clone(), None);
                        }
                        let message = status.message().to_owned();
                        last = CourierError::Refused {
                            cluster: cluster(),
                            endpoint: key.endpoint,
                            code,
                            message,
                        };
                    }
                }
            }
            let wait = backoff.next();
            if !is_worth_a_round || self.clock.instant() + wait >= deadline {
                break;
            }
            sleep(wait).await;
        }
        match last {
            CourierError::Refused { code: Code::Aborted, .. } => Ok(Reply::Contention),
            last => Err(last),
        }
    }

    async fn call(
        &self,
        channel: Channel,
        request: &AllocationRequest,
        deadline: Instant,
    ) -> Result<berth_api::allocation::proto::AllocationResponse, Status> {
        let left = deadline.saturating_duration_since(self.clock.instant()).min(self.call_limit);
        let mut service = AllocationServiceClient::new(channel);
        match timeout(left, service.allocate(request.clone())).await {
            Ok(answered) => answered.map(tonic::Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded(format!("no answer within {left:?}"))),
        }
    }

    fn rests(&self, key: &LineKey) -> bool {
        let now = self.clock.instant();
        self.lock().get(key).is_some_and(|line| line.rests(now))
    }

    /// The open line, or a new one.
    async fn line(&self, key: &LineKey, connection: &ConnectionInfo) -> Result<Channel, CourierError> {
        let now = self.clock.instant();
        let open = self.lock().get(key).filter(|line| line.is_of_use(now)).and_then(|line| line.open.clone());
        if let Some((channel, _)) = open {
            return Ok(channel);
        }
        let unfit = |what: String| CourierError::Unfit { cluster: connection.cluster_name.clone(), what };
        if key.secret.is_empty() {
            return Err(unfit(
                "its policy names no Secret with a certificate for it (secretName)".to_owned(),
            ));
        }
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &key.namespace);
        let secret = secrets.get(&key.secret).await.map_err(|source| CourierError::Secret {
            cluster: connection.cluster_name.clone(),
            namespace: key.namespace.clone(),
            name: key.secret.clone(),
            source,
        })?;
        let tls = security(&secret, &key.server_ca).map_err(unfit)?;
        let endpoint = Endpoint::from_shared(format!("https://{}", key.endpoint))
            .map_err(|error| unfit(format!("{:?} is no endpoint: {error}", key.endpoint)))?
            .connect_timeout(self.call_limit)
            .tls_config(tls)
            .map_err(|error| unfit(format!("its certificates cannot be used: {}", told(&error))))?;
        let channel = endpoint.connect_lazy();
        let mut lines = self.lock();
        // Of policies and certificates that are no more, nothing is kept.
        lines.retain(|_, line| line.is_of_use(now));
        lines.insert(key.clone(), Line { open: Some((channel.clone(), now)), rests_until: None });
        Ok(channel)
    }

    /// The next call takes a new line, with its certificate read anew.
    fn hang_up(&self, key: LineKey, rests_until: Option<Instant>) {
        self.lock().insert(key, Line { open: None, rests_until });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LineKey, Line>> {
        // Nothing panics while it is held.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the same question may be answered otherwise in a moment.
fn may_change_its_mind(code: Code) -> bool {
    match code {
        Code::Unknown | Code::Internal | Code::Aborted | Code::DataLoss => true,
        Code::Ok
        | Code::Cancelled
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unavailable
        | Code::Unauthenticated => false,
    }
}

/// How the line is secured: by the Secret's certificate, and the authorities of the policy and of the Secret; without
/// any, those that the machine trusts.
fn security(secret: &Secret, server_ca: &str) -> Result<ClientTlsConfig, String> {
    let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.clone());
    let needed = |key: &str| data(key).ok_or_else(|| format!("its Secret has no {key}"));
    let mut tls = ClientTlsConfig::new().identity(Identity::from_pem(needed("tls.crt")?, needed("tls.key")?));
    let of_policy = match server_ca {
        "" => None,
        text => Some(
            serde_json::from_value::<k8s_openapi::ByteString>(serde_json::Value::String(text.to_owned()))
                .map_err(|error| format!("its policy's serverCa is no base64: {error}"))?
                .0,
        ),
    };
    let authorities: Vec<Vec<u8>> = [of_policy, data("ca.crt")].into_iter().flatten().collect();
    if authorities.is_empty() {
        tls = tls.with_native_roots();
    }
    Ok(tls.ca_certificates(authorities.into_iter().map(Certificate::from_pem)))
}

fn told(error: &tonic::transport::Error) -> String {
    berth_runtime::error::chain(error)
}

/// `HOST` means the usual port there.
fn with_port(endpoint: &str) -> String {
    // An IPv6 address in brackets has colons of its own.
    let after_host = endpoint.rsplit(']').next().unwrap_or(endpoint);
    if after_host.contains(':') { endpoint.to_owned() } else { format!("{endpoint}:{PORT}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_a_port_means_the_usual_one() {
        for (given, meant) in [
            ("10.0.0.1", "10.0.0.1:443"),
            ("h:8443", "h:8443"),
            ("[fd00::1]", "[fd00::1]:443"),
            ("[fd00::1]:9", "[fd00::1]:9"),
        ] {
            assert_eq!(with_port(given), meant);
        }
    }

    #[test]
    fn a_secret_that_does_not_do_is_told_by_what_it_lacks() {
        let secret = |keys: &[&str]| Secret {
            data: Some(
                keys.iter().map(|key| ((*key).to_owned(), k8s_openapi::ByteString(Vec::new()))).collect(),
            ),
            ..Secret::default()
        };
        assert_eq!(security(&secret(&[]), "").unwrap_err(), "its Secret has no tls.crt");
        assert_eq!(security(&secret(&["tls.crt"]), "").unwrap_err(), "its Secret has no tls.key");
        let refused = security(&secret(&["tls.crt", "tls.key"]), "%").unwrap_err();
        assert!(refused.starts_with("its policy's serverCa is no base64"), "{refused}");
    }
}
