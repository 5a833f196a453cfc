//! The calls of [`Call`] over AWS's own SDK. Nothing is decided here, and no error leaves it unclassified.
//!
//! Region, endpoint and credentials come the ordinary way: environment, profile, web identity, container, instance. The
//! role needs no more than the operations that [`Call`] names.

use std::error::Error;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_gamelift::Client;
use aws_sdk_gamelift::config::http::HttpResponse;
use aws_sdk_gamelift::config::{Builder, Region};
use aws_sdk_gamelift::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_gamelift::types::{
    ClaimFilterOption, FilterInstanceStatus, GameServerHealthCheck, GameServerInstanceStatus,
    GameServerUtilizationStatus,
};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use berth_api::notice::InstanceStatus;
use berth_runtime::error::chain;
use berth_runtime::kill_point::around;
use tracing::debug;

use super::call::{Answer, Call, Failure, Registration, Utilization};
use crate::effects::Effect;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(3);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// How long a call may take, with the credentials that it may have to wait for.
const CALL: Duration = Duration::from_secs(12);

/// How AWS is reached from here, by environment and instance. The region may be told; else it is found the same way.
pub async fn configuration(region: Option<String>) -> SdkConfig {
    let http =
        aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http);
    if let Some(region) = region {
        loader = loader.region(Region::new(region));
    }
    // The providers of credentials take their limits from here as well.
    loader.timeout_config(limits()).load().await
}

/// How long a call may take, and its parts.
pub(crate) fn limits() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        .operation_attempt_timeout(ATTEMPT)
        .operation_timeout(CALL)
        .build()
}

/// Makes the calls of one instance in one group.
#[derive(Clone, Debug)]
pub struct FleetClient {
    client: Client,
    group: String,
    instance: String,
}

impl FleetClient {
    /// The client of an instance. Its server has the instance's id.
    #[must_use]
    pub fn new(aws: Builder, group: &str, instance: &str) -> Self {
        // A call is one attempt. Whoever makes it knows when the next is worth while, for this instance and for the quota that
        // it shares with a thousand others; attempts in between would only fill that quota.
        let config = aws.timeout_config(limits()).retry_config(RetryConfig::disabled()).build();
        Self { client: Client::from_conf(config), group: group.to_owned(), instance: instance.to_owned() }
    }

    /// Makes a call, within twelve seconds.
    pub async fn call(&self, call: Call) -> Answer {
        let effect = Effect::from(call);
        match call {
            Call::Register => Answer::Register(around(effect, self.register()).await),
            Call::Claim => Answer::Claim(around(effect, self.claim()).await),
            Call::Update => Answer::Update(around(effect, self.update()).await),
            Call::Live => Answer::Live(around(effect, self.live()).await),
            Call::Describe => Answer::Describe(around(effect, self.describe()).await),
            Call::AskStatus => Answer::AskStatus(around(effect, self.ask_status()).await),
            Call::Deregister => Answer::Deregister(around(effect, self.deregister()).await),
        }
    }

    async fn register(&self) -> Result<(), Failure> {
        let register = self.client.register_game_server();
        let register = register.game_server_group_name(&self.group).game_server_id(&self.instance);
        let answer = register.instance_id(&self.instance).send().await;
        answer.map(drop).map_err(|error| failure(Call::Register, &error))
    }

    async fn claim(&self) -> Result<(), Failure> {
        let any = ClaimFilterOption::builder()
            .instance_statuses(FilterInstanceStatus::Active)
            .instance_statuses(FilterInstanceStatus::Draining)
            .build();
        let claim = self.client.claim_game_server();
        let claim = claim.game_server_group_name(&self.group).game_server_id(&self.instance);
        let answer = claim.filter_option(any).send().await;
        answer.map(drop).map_err(|error| failure(Call::Claim, &error))
    }

    async fn update(&self) -> Result<Utilization, Failure> {
        let update = self.client.update_game_server();
        let answer = update
            .game_server_group_name(&self.group)
            .game_server_id(&self.instance)
            .utilization_status(GameServerUtilizationStatus::Utilized)
            .health_check(GameServerHealthCheck::Healthy)
            .send()
            .await
            .map_err(|error| failure(Call::Update, &error))?;
        // An answer that does not say is as good as one that agrees: the update was taken.
        let status = answer.game_server.and_then(|server| server.utilization_status);
        Ok(status.map_or(Utilization::Utilized, |status| utilization(&status)))
    }

    async fn live(&self) -> Result<Utilization, Failure> {
        let update = self.client.update_game_server();
        let answer = update
            .game_server_group_name(&self.group)
            .game_server_id(&self.instance)
            .health_check(GameServerHealthCheck::Healthy)
            .send()
            .await
            .map_err(|error| failure(Call::Live, &error))?;
        let status = answer.game_server.and_then(|server| server.utilization_status);
        Ok(status.map_or(Utilization::Available, |status| utilization(&status)))
    }

    async fn describe(&self) -> Result<Registration, Failure> {
        let describe = self.client.describe_game_server();
        let describe = describe.game_server_group_name(&self.group).game_server_id(&self.instance);
        let answer = describe.send().await.map_err(|error| failure(Call::Describe, &error))?;
        let server = answer.game_server.ok_or(Failure::Other)?;
        Ok(Registration {
            is_ours: server.instance_id.as_deref() == Some(self.instance.as_str()),
            utilization: server
                .utilization_status
                .map_or(Utilization::Available, |status| utilization(&status)),
        })
    }

    async fn ask_status(&self) -> Result<Option<InstanceStatus>, Failure> {
        let describe = self.client.describe_game_server_instances();
        let describe = describe.game_server_group_name(&self.group).instance_ids(&self.instance);
        let answer = describe.send().await.map_err(|error| failure(Call::AskStatus, &error))?;
        let mut instances = answer.game_server_instances.unwrap_or_default().into_iter();
        let ours = instances.find(|one| one.instance_id.as_deref() == Some(self.instance.as_str()));
        Ok(ours.and_then(|one| one.instance_status).and_then(|status| judgement(&status)))
    }

    async fn deregister(&self) -> Result<(), Failure> {
        let deregister = self.client.deregister_game_server();
        let deregister = deregister.game_server_group_name(&self.group).game_server_id(&self.instance);
        deregister.send().await.map(drop).map_err(|error| failure(Call::Deregister, &error))
    }
}

fn utilization(status: &GameServerUtilizationStatus) -> Utilization {
    if *status == GameServerUtilizationStatus::Utilized {
        Utilization::Utilized
    } else {
        Utilization::Available
    }
}

fn judgement(status: &GameServerInstanceStatus) -> Option<InstanceStatus> {
    match status.as_str() {
        "ACTIVE" => Some(InstanceStatus::Active),
        "DRAINING" => Some(InstanceStatus::Draining),
        "SPOT_TERMINATING" => Some(InstanceStatus::SpotTerminating),
        _ => None,
    }
}

fn failure<E>(call: Call, error: &SdkError<E, HttpResponse>) -> Failure
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let failure = failure_of(error);
    debug!(operation = call.operation(), code = failure.word(), error = %chain(error), "FleetIQ");
    failure
}

/// What kind of failure an error is. The SDK models some codes only; all of them arrive by name.
pub(crate) fn failure_of<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Failure {
    match error {
        SdkError::ConstructionFailure(_) => Failure::Unreachable,
        SdkError::TimeoutError(_) => Failure::Timeout,
        SdkError::DispatchFailure(problem) if problem.is_timeout() => Failure::Timeout,
        SdkError::DispatchFailure(_) => Failure::Unreachable,
        SdkError::ResponseError(problem) => match problem.raw().status().as_u16() {
            // An answer that broke off, or that nobody can read: it may have been done.
            200..=299 => Failure::Timeout,
            status => Failure::of_status(Some(status)),
        },
        SdkError::ServiceError(problem) => {
            let status = Some(problem.raw().status().as_u16());
            match problem.err().code() {
                Some(code) => Failure::of_code(code, status),
                None => Failure::of_status(status),
            }
        }
        _ => Failure::Other,
    }
}
