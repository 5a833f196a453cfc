//! Redis that goes, falls silent, or refuses.

use std::time::Duration;

use berth_api::notice::instance_key;
use berth_dev::{RedisOptions, RedisTls};
use berth_runtime::redis_url::RedisFlags;
use tokio::time::Instant;

use crate::redis::{Asker, Subscriber, Wire};
use crate::stage::{GROUP, Stage};

/// How soon there are messages again.
const RETURN: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_redis_was_gone_all_is_told_again() {
    let stage = Stage::new(2).await;
    let instance = stage.instances()[0].clone();
    let running = stage.start(stage.settings()).await;
    running.wait_for_metric("berth_pubsub_messages_total{kind=\"change\"}", 2.0).await;
    stage.redis.daemon().kill().await.unwrap();
    running.wait_for_metric("berth_pubsub_redis_failures_total", 3.0).await;
    let (code, unmet) = running.ask("/readyz").await;
    assert_eq!((code, unmet.as_str()), (503, "not ready: redis\n"));
    // It goes on polling, and tells the newest.
    stage.set_status(&instance, "DRAINING");
    stage.redis.daemon().start_again().unwrap();
    stage.redis.wait_until_listening().await.unwrap();
    let back = Instant::now();
    let mut asker = Asker::of(&stage).await;
    asker
        .wait_for(&instance_key(&instance), "DRAINING", |kept| {
            kept.is_some_and(|kept| kept.contains("DRAINING"))
        })
        .await;
    assert!(back.elapsed() < RETURN, "{:?}", back.elapsed());
    let mut subscriber = Subscriber::of(&stage, &[&instance]).await;
    subscriber.wait_for("DRAINING").await;
    running.wait_for_metric("berth_pubsub_redis_connected", 1.0).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_says_nothing_is_left() {
    let stage = Stage::new(1).await;
    let instance = stage.instances()[0].clone();
    let wire = Wire::to(stage.redis.port()).await;
    let mut settings = stage.settings();
    let url = format!("127.0.0.1:{}", wire.port);
    settings.redis = RedisFlags { redis_url: Some(url.as_str().into()), ..RedisFlags::default() };
    let running = stage.start(settings).await;
    let mut subscriber = Subscriber::of(&stage, &[&instance]).await;
    subscriber.wait_for("ACTIVE").await;
    let cut = Instant::now();
    wire.cut();
    stage.set_status(&instance, "DRAINING");
    running.wait_for_metric("berth_pubsub_redis_failures_total", 1.0).await;
    assert!(cut.elapsed() < Duration::from_secs(45), "{:?}", cut.elapsed());
    wire.mend();
    let mended = Instant::now();
    subscriber.wait_for("DRAINING").await;
    assert!(mended.elapsed() < RETURN, "{:?}", mended.elapsed());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_connection_is_asked_whether_it_is_there() {
    let stage = Stage::new(0).await;
    let wire = Wire::to(stage.redis.port()).await;
    let mut settings = stage.settings();
    let url = format!("127.0.0.1:{}", wire.port);
    settings.redis = RedisFlags { redis_url: Some(url.as_str().into()), ..RedisFlags::default() };
    // Nothing to tell: the list of groups is not there.
    settings.groups_file = stage.folder.join("nowhere");
    let running = stage.start(settings).await;
    running.wait_for_metric("berth_pubsub_redis_connected", 1.0).await;
    let cut = Instant::now();
    wire.cut();
    running.wait_for_metric("berth_pubsub_redis_failures_total", 1.0).await;
    assert!(cut.elapsed() < Duration::from_secs(45), "{:?}", cut.elapsed());
    wire.mend();
    running.wait_for_metric("berth_pubsub_redis_connects_total", 2.0).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_became_a_replica_is_left_for_another() {
    let stage = Stage::new(1).await;
    let running = stage.start(stage.settings()).await;
    running.wait_for_metric("berth_pubsub_redis_connected", 1.0).await;
    let mut admin = Admin::of(&stage.url()).await;
    // Of a server that is not there: it serves on, and takes no writes.
    admin.order(&["REPLICAOF", "127.0.0.1", "1"]).await;
    running.wait_for_metric("berth_pubsub_redis_failures_total", 1.0).await;
    admin.order(&["REPLICAOF", "NO", "ONE"]).await;
    let written = running.metric("berth_pubsub_keys_written_total").await;
    running.wait_for_metric("berth_pubsub_keys_written_total", written + 3.0).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_keys_are_refused_channels_are_used_alone() {
    let only_channels = ["--user", "default", "on", "nopass", "resetkeys", "&*", "+@all"];
    let options =
        RedisOptions { arguments: only_channels.map(str::to_owned).into(), ..RedisOptions::default() };
    let stage = Stage::empty(options).await;
    stage.group(GROUP, 1);
    let instance = stage.instances()[0].clone();
    let mut subscriber = Subscriber::of(&stage, &[&instance]).await;
    let running = stage.start(stage.settings()).await;
    subscriber.wait_for("ACTIVE").await;
    stage.set_status(&instance, "DRAINING");
    subscriber.wait_for("DRAINING").await;
    subscriber.wait_for("DRAINING").await;
    let refusals = running.metric("berth_pubsub_redis_refusals_total{what=\"key\"}").await;
    assert!((1.0..6.0).contains(&refusals), "not asked again and again: {refusals}");
    assert_eq!(running.metric("berth_pubsub_redis_failures_total").await, 0.0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_a_user_of_an_access_list_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let (tls, authority) = certificates(folder.path());
    let secret = "a!&#$^<>-token-of-elasticache";
    // The rights that docs/fleetiq.md names, and no others.
    let rights = "~fleetiq:* &* +auth +ping +select +set +del +publish";
    let page = std::fs::read_to_string(crate::stage::manifests().join("../docs/fleetiq.md")).unwrap();
    assert!(page.contains(&format!("`{rights}`")), "{page}");
    let user = format!("--user default off --user berth on >{secret} {rights}");
    let arguments = user.split(' ').map(str::to_owned).collect();
    let stage = Stage::empty(RedisOptions { tls: Some(tls), arguments }).await;
    stage.group(GROUP, 1);
    let password = folder.path().join("password");
    std::fs::write(&password, "wrong\n").unwrap();
    let mut settings = stage.settings();
    let port = stage.redis.port();
    settings.redis = RedisFlags {
        redis_url: Some(format!("rediss://127.0.0.1:{port}").into()),
        redis_username: Some("berth".to_owned()),
        redis_password_file: Some(password.clone()),
        redis_ca_file: Some(authority.clone()),
        redis_tls_server_name: Some("cache.example.com".to_owned()),
        ..RedisFlags::default()
    };
    let mut other = settings.clone();
    let refused = stage.start(settings).await;
    refused.wait_for_metric("berth_pubsub_redis_failures_total", 1.0).await;
    assert_eq!(refused.metric("berth_pubsub_redis_connected").await, 0.0);
    refused.stop().await;
    // The file is read at each connection; here, at the first of another publisher.
    std::fs::write(&password, format!("{secret}\n")).unwrap();
    let running = stage.start(other.clone()).await;
    running.wait_for_metric("berth_pubsub_messages_total{kind=\"change\"}", 1.0).await;
    running.wait_for_metric("berth_pubsub_keys_written_total", 1.0).await;
    running.stop().await;
    // A certificate for another name is not taken.
    other.redis.redis_tls_server_name = None;
    let distrustful = stage.start(other).await;
    distrustful.wait_for_metric("berth_pubsub_redis_failures_total", 1.0).await;
    assert_eq!(distrustful.metric("berth_pubsub_redis_connects_total").await, 0.0);
    distrustful.stop().await;
}

/// Certificates of a server that is called `cache.example.com`, and the file of its authority.
fn certificates(folder: &std::path::Path) -> (RedisTls, std::path::PathBuf) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("an authority").pem();
    let issuer = Issuer::new(params, key);
    let server_key = KeyPair::generate().expect("a key");
    let server = CertificateParams::new(vec!["cache.example.com".to_owned()]).expect("a name");
    let server = server.signed_by(&server_key, &issuer).expect("a certificate");
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let tls = RedisTls {
        certificate: write("server.crt", server.pem()),
        key: write("server.key", server_key.serialize_pem()),
        authority: write("ca.crt", authority),
    };
    let authority = tls.authority.clone();
    (tls, authority)
}

/// Somebody who may do anything.
struct Admin(berth_runtime::redis_connection::RedisConnection);

impl Admin {
    async fn of(url: &str) -> Self {
        let server = crate::redis::server(url);
        Self(berth_runtime::redis_connection::RedisConnection::open(&server).await.expect("a connection"))
    }

    async fn order(&mut self, words: &[&str]) {
        use berth_runtime::redis_connection::{Command, Reply};
        let command = words[1..].iter().fold(Command::new(words[0]), |command, word| command.with(word));
        let replies = self.0.call(&[command], Duration::from_secs(60)).await.expect("a reply");
        assert!(!matches!(replies[0], Reply::Error(_)), "{replies:?}");
    }
}
