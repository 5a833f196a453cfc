//! The composition root: listeners around one set of services, in this process or as a program of its own.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use berth_runtime::exit::BadConfiguration;
use berth_runtime::shutdown::Shutdown;
use berth_runtime::tasks::TaskGroup;
use berth_runtime::{CancellationToken, telemetry};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tracing::info;

use crate::authority;
use crate::listen::{Listener, Side};
use crate::scenario::Scenario;
use crate::services::{Plan, Services, Shared};
use crate::settings::{Settings, Signatures};
use crate::wire::signature::{Credentials, Strictness};
use crate::wire::{self, Conduct, Incoming, Reply};
use crate::world::{Order, Place};
use crate::{admin, metadata};

/// How long connections have to end once we stop.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the simulator until it is asked to stop.
///
/// # Errors
/// When it cannot start, or a part of it failed.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    telemetry::init(&settings.log)?;
    let shutdown = Shutdown::on_signals()?;
    let simulator = Simulator::start_until(&settings, shutdown.token()).await?;
    println!("{}", simulator.announcement(&settings));
    simulator.tasks.join(GRACE).await?;
    Ok(())
}

/// A simulator that runs in this process.
pub struct Simulator {
    shared: Shared,
    aws: SocketAddr,
    imds: SocketAddr,
    admin: SocketAddr,
    authority: String,
    tasks: TaskGroup,
}

impl Simulator {
    /// Starts one that runs until it is stopped.
    ///
    /// # Errors
    /// When an address cannot be had, or the settings make no sense.
    pub async fn start(settings: &Settings) -> anyhow::Result<Self> {
        Self::start_until(settings, CancellationToken::new()).await
    }

    async fn start_until(settings: &Settings, stop: CancellationToken) -> anyhow::Result<Self> {
        let shared = Shared::new(services(settings)?);
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let authority = authority::make(&[&names[..], &settings.names[..]].concat())?;
        if let Some(path) = &settings.authority_file {
            fs::write(path, &authority.certificate)
                .with_context(|| format!("could not write the authority to {}", path.display()))?;
        }
        let tasks = TaskGroup::new(stop.clone());
        let (aws, front_door) = bind(settings.aws_address).await?;
        let (imds, metadata) = bind(settings.imds_address).await?;
        let (admin_address, admin_socket) = bind(settings.admin_address).await?;
        for (name, side, socket, tls) in [
            ("aws", Side::Aws, front_door, Some(authority.front_door)),
            ("imds", Side::Metadata, metadata, None),
        ] {
            let listener = Listener { side, socket, tls, shared: shared.clone(), spawner: tasks.spawner() };
            tasks.spawn(name, listener.run(stop.clone()));
        }
        tasks.spawn("admin", admin::serve(admin_socket, shared.clone(), stop));
        info!(aws = %aws, imds = %imds, admin = %admin_address, seed = shared.lock().seed(), "serving");
        let authority = authority.certificate;
        Ok(Self { shared, aws, imds, admin: admin_address, authority, tasks })
    }

    /// The endpoint of the AWS services.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("https://{}", self.aws)
    }

    /// The endpoint of an instance's metadata.
    #[must_use]
    pub fn metadata_endpoint(&self, instance: &str) -> String {
        format!("http://{}/{instance}", self.imds)
    }

    /// Where orders are taken.
    #[must_use]
    pub fn admin_endpoint(&self) -> String {
        format!("http://{}", self.admin)
    }

    /// The certificate that clients have to trust, as PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Carries out an order, in the words of the admin API's `/orders`, and gives what came of it.
    ///
    /// # Errors
    /// When it is no order, or the account refuses it.
    pub fn order(&self, order: Value) -> anyhow::Result<Value> {
        let order = serde_json::from_value::<Order>(order).context("this is no order")?;
        let mut services = self.shared.lock();
        services.bring_up();
        Ok(services.world.perform(order)?)
    }

    /// Sets a fault, in the words of the admin API's `/faults`; null takes it away.
    ///
    /// # Errors
    /// When it is no fault.
    pub fn fault(&self, name: &str, rule: Value) -> anyhow::Result<()> {
        let mut services = self.shared.lock();
        let now = services.bring_up();
        if rule.is_null() {
            services.faults.remove(name);
        } else {
            let rule = serde_json::from_value(rule).context("this is no fault")?;
            services.faults.put(name.to_owned(), rule, now);
        }
        Ok(())
    }

    /// Changes quotas, in the words of the admin API's `/throttle`.
    ///
    /// # Errors
    /// When it is no such change.
    pub fn throttle(&self, change: Value) -> anyhow::Result<()> {
        let change = serde_json::from_value(change).context("this is no change of quotas")?;
        self.shared.lock().throttle.change(change);
        Ok(())
    }

    /// Changes how answers are written, in the words of the admin API's `/style`.
    ///
    /// # Errors
    /// When it is no such style.
    pub fn style(&self, style: Value) -> anyhow::Result<()> {
        self.shared.lock().style = serde_json::from_value(style).context("this is no style")?;
        Ok(())
    }

    /// What is wrong with an instance's metadata, in the words of the admin API's `imds`.
    ///
    /// # Errors
    /// When it is no such thing.
    pub fn metadata(&self, instance: &str, switches: Value) -> anyhow::Result<()> {
        let instance = serde_json::from_value(instance.into()).context("this is no instance")?;
        let switches =
            serde_json::from_value::<metadata::Switches>(switches).context("these are no switches")?;
        let mut services = self.shared.lock();
        let now = services.bring_up();
        services.metadata.switch(&instance, switches, now);
        Ok(())
    }

    /// Moves the clock on, and lets everything happen that is due by then.
    pub fn advance(&self, by: Duration) {
        let mut services = self.shared.lock();
        services.clock.advance(by);
        services.bring_up();
    }

    /// Everything that the account has now, as the admin API's `/state` shows it, with the audit.
    #[must_use]
    pub fn state(&self) -> Value {
        admin::state(&mut self.shared.lock())
    }

    /// Everything that happened.
    #[must_use]
    pub fn events(&self) -> Value {
        let mut services = self.shared.lock();
        services.bring_up();
        json!(services.world.events_since(0))
    }

    /// The requests of an operation, the oldest first.
    #[must_use]
    pub fn requests(&self, operation: &str) -> Vec<Value> {
        let services = self.shared.lock();
        services.journal.about(Some(operation), None).map(|entry| json!(entry)).collect()
    }

    /// Makes a call of GameLift's as a client does that speaks JSON, without a connection: its status, and its answer. Faults
    /// of the connection have no answer. Signatures must not be asked for.
    #[must_use]
    pub fn call(&self, operation: &str, body: &Value) -> (u16, Value) {
        let target = format!("GameLift.{operation}");
        let mut headers = http::HeaderMap::new();
        for (name, value) in
            [("content-type", "application/x-amz-json-1.1"), ("x-amz-target", target.as_str())]
        {
            headers.extend(
                http::HeaderValue::from_str(value).map(|value| (http::HeaderName::from_static(name), value)),
            );
        }
        let request = Incoming {
            method: "POST".to_owned(),
            path: "/".to_owned(),
            query: String::new(),
            headers,
            body: body.to_string().into(),
        };
        match wire::answer(&mut self.shared.lock(), &request, berth_runtime::clock::now()).conduct {
            Conduct::Reply(Reply { status, body, .. }) => {
                (status, serde_json::from_slice(&body).unwrap_or_default())
            }
            Conduct::Cut(..) | Conduct::Hang | Conduct::Reset(_) => (0, Value::Null),
        }
    }

    /// Stops it and waits for its end.
    ///
    /// # Errors
    /// When a part of it failed.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.tasks.token().cancel();
        Ok(self.tasks.join(GRACE).await?)
    }

    /// What a program needs to know that has started this one.
    fn announcement(&self, settings: &Settings) -> Value {
        json!({
            "aws": self.endpoint(),
            "imds": format!("http://{}", self.imds),
            "admin": self.admin_endpoint(),
            "authority": settings.authority_file,
            "region": settings.region,
            "access_key": settings.access_key,
            "seed": self.shared.lock().seed(),
        })
    }
}

fn services(settings: &Settings) -> anyhow::Result<Services> {
    let scenario = settings.scenario.as_deref().map(Scenario::named).transpose();
    let scenario = scenario.map_err(|error| {
        BadConfiguration::new(format!("--scenario: {}", berth_runtime::error::chain(&error)))
    })?;
    let mut services = Services::new(Plan {
        place: Place { region: settings.region.clone(), account: settings.account.clone() },
        pace: settings.clock,
        origin: settings.start,
        seed: settings.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
        credentials: vec![Credentials {
            access_key: settings.access_key.clone(),
            secret: settings.secret_key.clone(),
            token: None,
        }],
        strictness: match settings.signatures {
            Signatures::Verify => Strictness::Verify,
            Signatures::Read => Strictness::Read,
        },
    });
    services.reset(scenario.as_ref())?;
    Ok(services)
}

async fn bind(address: SocketAddr) -> anyhow::Result<(SocketAddr, TcpListener)> {
    let socket = TcpListener::bind(address)
        .await
        .with_context(|| format!("could not listen on {address}; choose another port or free it"))?;
    Ok((socket.local_addr().context("could not read the address of a listener")?, socket))
}
