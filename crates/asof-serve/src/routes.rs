//! The HTTP part of the API, described in `API.md`.

use std::convert::Infallible;
use std::sync::Arc;

use asof_blocks::HeadClass;
use asof_core::{Message, Query as SourceQuery, Source, TimeRange, Topics};
use asof_decode::Decoders;
use axum::body::Body;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Query, Request, State, WebSocketUpgrade};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::Value;

use crate::app::{App, problems};
use crate::foxglove::{PARAMETER_BYTES, values_as_of};
use crate::guard::{Credential, Guard, Refusal};
use crate::latest::each_latest;
use crate::opened::{Place, router_of};
use crate::policy::POLICY;
use crate::queries::{MOST_ROWS, QueryLimits};
use crate::record::fields_of;
use crate::reply::{Failure, PART_BYTES, answered, broken, failed, refused, with_room, wrong};
use crate::series::{MOST_COLUMNS, Plan, What};
use crate::show::{Form, ShowOptions};
use crate::snapshots;
use crate::tracks::Track;
use crate::waiting::Connection;
use crate::{assets, changes, foxglove, layouts, page, plots, recordings, session, sound, video};

type Shared = State<Arc<App>>;

/// All that the server answers, checked: its own recording, and those that are open beside it.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let own = routes(app);
    let guarded = move |state: Shared, request: Request| {
        let own = own.clone();
        async move { guarded(state, request, own).await }
    };
    Router::new().fallback(guarded).with_state(Arc::clone(app))
}

/// The routes of one recording.
pub(crate) fn routes(app: &Arc<App>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/ws", get(socket))
        .route("/api/summary", get(summary))
        .route("/api/status", get(status))
        .route("/api/problems", get(all_problems))
        .route("/api/loaded", get(loaded))
        .route("/api/at", get(at))
        .route("/api/message", get(message))
        .route("/api/messages", get(messages))
        .route("/api/fields", get(fields))
        .route("/api/plots", get(first_plots))
        .route("/api/frames", get(frames))
        .route("/api/series", get(series))
        .route("/api/density", get(density))
        .route("/api/rows", get(rows))
        .route("/api/states", get(states))
        .route("/api/asset", get(asset))
        .route("/api/video", get(video_packets))
        .route("/api/sound", get(sound_packets))
        .route("/api/parameters", get(parameters))
        .route(changes::PATHS[0], get(annotations).post(changes::add))
        .route(changes::PATHS[1], post(changes::remove))
        .route(changes::PATHS[2], post(changes::upload))
        .route(changes::PATHS[3], post(changes::open))
        .route(
            changes::PATHS[4],
            get(snapshots::state).post(snapshots::write),
        )
        .route(changes::PATHS[5], post(recordings::open))
        .route("/api/recordings", get(recordings::list))
        .route(changes::PATHS[6], get(layouts::list).post(layouts::keep))
        .route(changes::PATHS[7], post(layouts::remove))
        .route("/api/sql", get(sql))
        .fallback(files)
        .with_state(Arc::clone(app))
}

/// Checks every request before it is answered. Every response, a refusal too, has the security headers.
async fn guarded(State(app): Shared, request: Request, own: Router) -> Response {
    let mut response = checked(&app, request, own).await;
    let headers = response.headers_mut();
    for (name, value) in SAFE_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Some(policy) = &app.page.policy {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy.clone());
    }
    response
}

async fn checked(app: &Arc<App>, request: Request, own: Router) -> Response {
    let place = Place::of(request.uri().path());
    let checked = app
        .guard
        .check(request.headers(), request.uri(), place.path);
    let credential = match checked {
        Ok(credential) => credential,
        Err(Refusal::Origin) => {
            let text = app.refusals.note_origin(request.headers());
            return (Refusal::Origin.status(), format!("{text}\n")).into_response();
        }
        // Only the path: the query may contain a secret that is almost right.
        Err(refusal) => return refused(app, refusal, request.uri().path()),
    };
    let is_reading = request.method() == Method::GET || request.method() == Method::HEAD;
    let may_change = request.method() == Method::POST
        && changes::PATHS.contains(&place.path)
        && Guard::may_change(request.headers());
    if !is_reading && !may_change {
        return refused(app, Refusal::Malformed, request.method().as_str());
    }
    let is_upgrade = request.headers().contains_key(header::UPGRADE);
    // A change is carried out: a client that follows the redirection would repeat it as a GET.
    if credential == Credential::InAddress && is_reading && !is_upgrade {
        keep_token(app, &request)
    } else if place.key.is_some() {
        beside(app, request, is_upgrade).await
    } else {
        app.usage.touch();
        routed(own, request).await
    }
}

async fn routed(router: Router, request: Request) -> Response {
    let Ok(response) = TowerToHyperService::new(router).call(request).await;
    response
}

/// Passes a request on to the recording that its path names.
async fn beside(app: &Arc<App>, mut request: Request, is_upgrade: bool) -> Response {
    let uri = request.uri();
    let Place { key, path } = Place::of(uri.path());
    let key = key.unwrap_or_default().to_owned();
    if path.is_empty() {
        let to = [(header::LOCATION, format!("/r/{key}/"))];
        return (StatusCode::SEE_OTHER, to).into_response();
    }
    // The page itself opens nothing: any site may have a link to it.
    if let (Some(file), false) = (page::file(path), is_upgrade) {
        if let Some(opened) = &app.opened {
            opened.forget_closed(&key);
        }
        return ([(header::CONTENT_TYPE, file.media_type)], file.bytes).into_response();
    }
    let query = uri
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let Ok(inner) = format!("{path}{query}").parse::<Uri>() else {
        return refused(app, Refusal::Path, uri.path());
    };
    match router_of(app, &key).await {
        Ok(router) => {
            *request.uri_mut() = inner;
            routed(router, request).await
        }
        Err(refusal) => wrong(refusal.to_string()),
    }
}

pub(crate) const SAFE_HEADERS: [(header::HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        header::HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (header::CACHE_CONTROL, "no-store"),
];

/// Moves the token from the address to a cookie that neither scripts nor other sites can use.
fn keep_token(app: &App, request: &Request) -> Response {
    let token = app.guard.token.as_deref().unwrap_or_default();
    let name = app.guard.cookie_name();
    let cookie = format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=604800");
    let query = request.uri().query().unwrap_or_default();
    let rest: Vec<&str> = query
        .split('&')
        .filter(|pair| !pair.starts_with("token="))
        .collect();
    let path = request.uri().path();
    // Two leading slashes would name another server.
    let path = format!("/{}", path.trim_start_matches('/'));
    let to = if rest.is_empty() {
        path
    } else {
        format!("{path}?{}", rest.join("&"))
    };
    let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, to)];
    (StatusCode::SEE_OTHER, headers).into_response()
}

type Upgrade = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;
type Connected = Extension<Arc<Connection>>;

/// The page; and the WebSocket for Foxglove, which does not use paths.
async fn index(
    state: Shared,
    connection: Connected,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    if headers.contains_key(header::UPGRADE) {
        // A client without a subprotocol is a viewer: the reference server accepts those too.
        return upgraded(state, connection, &headers, upgrade, foxglove::OLDER);
    }
    files(state, Request::new(Body::empty())).await
}

async fn files(State(app): Shared, request: Request) -> Response {
    match page::file(request.uri().path()) {
        Some(file) => ([(header::CONTENT_TYPE, file.media_type)], file.bytes).into_response(),
        None => refused(&app, Refusal::Path, request.uri().path()),
    }
}

async fn socket(
    state: Shared,
    connection: Connected,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    upgraded(state, connection, &headers, upgrade, session::PROTOCOL)
}

/// The supported subprotocols.
const PROTOCOLS: [&str; 3] = [session::PROTOCOL, foxglove::SDK, foxglove::OLDER];

/// Chooses the first supported subprotocol in the client's order. `otherwise` is for clients that offer none.
fn upgraded(
    State(app): Shared,
    Extension(connection): Connected,
    headers: &HeaderMap,
    upgrade: Upgrade,
    otherwise: &'static str,
) -> Response {
    let Ok(upgrade) = upgrade else {
        return refused(&app, Refusal::Malformed, "no WebSocket");
    };
    let mut offered = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .peekable();
    let has_offered = offered.peek().is_some();
    let chosen = offered.find_map(|name| PROTOCOLS.into_iter().find(|known| *known == name));
    let protocol = match (chosen, has_offered) {
        (Some(protocol), _) => protocol,
        (None, false) => otherwise,
        (None, true) => return refused(&app, Refusal::Malformed, "an unknown subprotocol"),
    };
    let Ok(permit) = Arc::clone(&app.clients).try_acquire_owned() else {
        return refused(&app, Refusal::Crowded, "a WebSocket");
    };
    connection.note_socket();
    let most = app.limits.message_bytes;
    let mut upgrade = upgrade
        .max_message_size(most)
        .max_frame_size(most)
        // A message of any size is one frame; the budget bounds what waits.
        .max_write_buffer_size(usize::MAX)
        .write_buffer_size(0);
    if has_offered {
        upgrade.set_selected_protocol(HeaderValue::from_static(protocol));
    }
    upgrade.on_upgrade(move |socket| async move {
        let socket = (socket, connection);
        let used = Arc::clone(&app);
        used.usage.connect();
        if protocol == session::PROTOCOL {
            session::run(app, socket).await;
        } else {
            foxglove::run(app, socket, protocol).await;
        }
        used.usage.disconnect();
        drop(permit);
    })
}

#[derive(Deserialize)]
struct AtTime {
    #[serde(default)]
    t: i64,
    topics: Option<String>,
}

#[derive(Deserialize)]
struct OneMessage {
    topic: String,
    #[serde(default)]
    t: i64,
    form: Option<Form>,
    /// The field that colours points, or the layer of a map.
    color: Option<String>,
    /// The most points.
    most: Option<usize>,
}

#[derive(Deserialize)]
struct ManyMessages {
    topic: String,
    start: Option<i64>,
    end: Option<i64>,
    limit: Option<usize>,
    /// This many messages, from the end backwards.
    last: Option<usize>,
}

#[derive(Deserialize)]
struct OfTopic {
    topic: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    paths: String,
}

#[derive(Deserialize)]
struct Stretch {
    #[serde(default)]
    topic: String,
    #[serde(default)]
    path: String,
    topics: Option<String>,
    start: Option<i64>,
    end: Option<i64>,
    columns: Option<usize>,
}

fn named(topics: Option<&str>) -> Topics {
    match topics {
        Some(topics) => Topics::named(topics.split(',')),
        None => Topics::All,
    }
}

async fn summary(State(app): Shared, Extension(connection): Connected) -> Response {
    answered(&app, &connection, |app, reply| {
        let _room = reply.room(app.summary_bytes())?;
        reply.json(&app.summary())
    })
    .await
}

async fn status(State(app): Shared, Extension(connection): Connected) -> Response {
    // Without waiting for a turn: it has to respond even when everything else waits.
    with_room(&app, &connection, app.status().to_string()).await
}

async fn all_problems(State(app): Shared, Extension(connection): Connected) -> Response {
    answered(&app, &connection, |app, reply| {
        reply.json(&problems(&app.cache.summary()))
    })
    .await
}

async fn loaded(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<AtTime>,
) -> Response {
    answered(&app, &connection, move |app, reply| {
        reply.json(&app.loaded(&named(asked.topics.as_deref())))
    })
    .await
}

/// What was known as of a time.
async fn at(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<AtTime>,
) -> Response {
    answered(&app, &connection, move |app, reply| {
        let topics = named(asked.topics.as_deref());
        let mut decoders = Decoders::default();
        let mut show = app.show(&mut decoders);
        each_latest(
            app,
            reply,
            &topics,
            app.absolute(asked.t),
            |reply, message| {
                let mut room = reply.room_to_decode(message.payload.len())?;
                let text = show.show(message, Form::Json).text();
                room.resize(text.len());
                reply.item(text.as_bytes())
            },
        )?;
        reply.end_list()
    })
    .await
}

/// One message as of a time, in a form.
async fn message(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<OneMessage>,
) -> Response {
    let form = asked.form.unwrap_or(Form::Json);
    answered(&app, &connection, move |app, reply| {
        let topics = Topics::named([asked.topic.clone()]);
        let known = app.cache.latest_at(&topics, app.absolute(asked.t));
        let known = known.map_err(|error| error.to_string())?;
        let Some(message) = known.get(0) else {
            return Err(Failure::Wrong(format!(
                "there is no message on {} up to this time",
                asked.topic
            )));
        };
        let mut room = reply.room_to_decode(message.payload.len())?;
        let mut decoders = Decoders::default();
        let mut show = app.show(&mut decoders);
        show.wish = ShowOptions {
            color: asked.color.clone(),
            most: asked.most,
            rate: None,
        };
        let shown = show.show(&message.to_message(), form);
        if form == Form::Json {
            let text = shown.text();
            room.resize(text.len());
            return reply.write(text.as_bytes());
        }
        room.resize(shown.body.len());
        let kind = shown.head.get("encoding").and_then(Value::as_str);
        match HeaderValue::from_str(kind.unwrap_or_default()) {
            Ok(media_type) if media_type.as_bytes().starts_with(b"image/") => {
                reply.set_media_type(media_type);
                reply.write(&shown.body)
            }
            _ => {
                reply.set_binary();
                reply.write(&shown.head_bytes())?;
                reply.write(&shown.body)
            }
        }
    })
    .await
}

fn binary(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response()
}

const MOST_MESSAGES: usize = 10_000;

async fn messages(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<ManyMessages>,
) -> Response {
    answered(&app, &connection, move |app, reply| {
        let limit = asked.limit.unwrap_or(1000).min(MOST_MESSAGES);
        let start = asked
            .start
            .map_or(asof_core::Stamp::MIN, |t| app.absolute(t));
        let end = asked.end.map_or(asof_core::Stamp::MAX, |t| app.absolute(t));
        let most = app.limits.answer_bytes;
        let mut decoders = Decoders::default();
        let mut show = app.show(&mut decoders);
        let mut bytes = 0;
        if let Some(last) = asked.last {
            let limits = (last.min(MOST_MESSAGES), most);
            let known = crate::show::last_within(&app.cache, &asked.topic, end, limits)?;
            // From the newest, so that the oldest are dropped from a long response.
            let mut kept = Vec::new();
            for message in known.iter().rev().filter(|one| one.log_time >= start) {
                bytes += message.payload.len();
                kept.push(message);
                if bytes >= most {
                    break;
                }
            }
            for message in kept.into_iter().rev() {
                let mut room = reply.room_to_decode(message.payload.len())?;
                let text = show.show(&message.to_message(), Form::Json).text();
                room.resize(text.len());
                reply.item(text.as_bytes())?;
            }
            return reply.end_list();
        }
        let query = SourceQuery {
            topics: Topics::named([asked.topic.clone()]),
            range: TimeRange::new(start, end),
        };
        let (mut left, mut done) = (limit, Ok(()));
        let mut write = |message: &Message| -> Result<usize, Failure> {
            let mut room = reply.room_to_decode(message.payload.len())?;
            let text = show.show(message, Form::Json).text();
            room.resize(text.len());
            reply.item(text.as_bytes())?;
            Ok(text.len())
        };
        crate::series::each(&app.cache, &query, HeadClass::Scrub, |message| {
            left = left.saturating_sub(1);
            done = write(&message).map(|written| bytes += written);
            done.is_ok() && bytes < most && left > 0
        })?;
        done?;
        reply.end_list()
    })
    .await
}

/// The fields of a topic that can be plotted.
async fn fields(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<OfTopic>,
) -> Response {
    answered(&app, &connection, move |app, reply| {
        let end = app.cache.summary().range.end;
        let known = app
            .cache
            .latest_at(&Topics::named([asked.topic.clone()]), end);
        let known = known.map_err(|error| error.to_string())?;
        let Some(message) = known.get(0) else {
            let text = format!("there is no message on {}", asked.topic);
            return Err(Failure::Wrong(text));
        };
        let _room = reply.room_to_decode(message.payload.len())?;
        let message = message.to_message();
        let mut decoders = Decoders::default();
        let record = decoders.record(&message).ok();
        let decoder = decoders.of(&message.channel, &[&message.payload]);
        let decoder = decoder.map_err(|error| error.to_string())?;
        reply.json(&fields_of(decoder, record.as_ref()))
    })
    .await
}

/// What is worth a plot at first sight.
async fn first_plots(State(app): Shared, Extension(connection): Connected) -> Response {
    answered(&app, &connection, |app, reply| {
        let found = plots::plots(app, reply)?;
        reply.json(&found)
    })
    .await
}

async fn frames(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<AtTime>,
) -> Response {
    answered(&app, &connection, move |app, reply| {
        let at = app.absolute(asked.t);
        let found = app.frames.at(at);
        let _room = reply.room(found.bytes())?;
        for edge in found.edges() {
            let text = serde_json::to_vec(&edge).map_err(|error| error.to_string())?;
            reply.item(&text)?;
        }
        reply.end_list()
    })
    .await
}

async fn series(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<Stretch>,
) -> Response {
    let what = What::MinMax {
        topic: asked.topic.clone(),
        path: asked.path.clone(),
    };
    stream(&app, connection, what, &asked)
}

async fn density(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<Stretch>,
) -> Response {
    let topics = if let Some(topics) = &asked.topics {
        topics.split(',').map(str::to_owned).collect()
    } else {
        let summary = app.cache.summary();
        summary.topics().into_iter().map(str::to_owned).collect()
    };
    stream(&app, connection, What::Density { topics }, &asked)
}

/// The columns as they become ready; see `API.md` for the format.
fn stream(app: &Arc<App>, connection: Arc<Connection>, what: What, asked: &Stretch) -> Response {
    let range = app.cache.summary().range;
    let start = asked.start.map_or(app.start, |t| app.absolute(t));
    let end = asked.end.map_or(range.end, |t| app.absolute(t));
    let columns = asked.columns.unwrap_or(1024);
    if columns == 0 || columns > MOST_COLUMNS {
        return wrong(format!("columns must be from 1 to {MOST_COLUMNS}"));
    }
    if range.is_empty() || start > end {
        return binary(Body::from(last_part(None)));
    }
    let plan = Plan {
        what,
        start,
        end,
        columns,
    };
    let Some((look, ready)) = app.looks.get(&plan) else {
        return refused(app, Refusal::Crowded, "a series");
    };
    // A client that does not read has at most one part waiting.
    let at_once = (PART_BYTES / (8 * look.lanes.max(1))).max(1);
    let first = Some((look, ready, connection, 0));
    let parts = futures_util::stream::unfold(first, move |state| async move {
        let (look, mut ready, connection, sent) = state?;
        let mut seen = *ready.borrow_and_update();
        while seen <= sent {
            if ready.changed().await.is_err() {
                return None;
            }
            seen = *ready.borrow_and_update();
        }
        let end = seen.min(look.columns).min(sent + at_once);
        let is_done = seen > look.columns && end == look.columns;
        let mut bytes = look.part(sent, end);
        if is_done {
            bytes.extend(last_part(look.error().as_deref()));
        }
        let Some(room) = connection.reserve(bytes.len()).await else {
            let none = last_part(Some(Refusal::NoRoom.text()));
            return Some((Ok::<_, Infallible>(Bytes::from(none)), None));
        };
        let next = (!is_done).then_some((look, ready, connection, end));
        Some((Ok(room.hold(bytes.into())), next))
    });
    binary(Body::from_stream(parts))
}

/// The end of a stream of columns: the error, if there was one.
fn last_part(error: Option<&str>) -> Vec<u8> {
    let error = error.unwrap_or_default();
    let mut bytes = u32::MAX.to_le_bytes().to_vec();
    bytes.extend((error.len() as u32).to_le_bytes());
    bytes.extend(error.as_bytes());
    bytes
}

async fn rows(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<OfTopic>,
) -> Response {
    let paths: Vec<String> = asked.paths.split(',').map(str::to_owned).collect();
    if paths.len() > 16 {
        return wrong("at most 16 fields at once");
    }
    let topic = asked.topic;
    let bytes = app.tracks.get(Track::Rows { topic, paths }).await;
    with_room(&app, &connection, bytes).await
}

async fn states(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<OfTopic>,
) -> Response {
    let OfTopic { topic, path, .. } = asked;
    let bytes = app.tracks.get(Track::States { topic, path }).await;
    with_room(&app, &connection, bytes).await
}

/// The annotations.
async fn annotations(State(app): Shared, Extension(connection): Connected) -> Response {
    answered(&app, &connection, changes::list).await
}

/// The parameters at a time, where they were logged.
async fn parameters(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<AtTime>,
) -> Response {
    answered(&app, &connection, move |app, reply| {
        let at = app.absolute(asked.t);
        let _room = reply.room(PARAMETER_BYTES)?;
        let mut known = values_as_of(app, at, || reply.is_wanted())?;
        if let Some(cut) = known.cut() {
            known.values.insert("…".to_owned(), cut.into());
        }
        reply.json(&known.values)
    })
    .await
}

#[derive(Deserialize)]
struct OfVideo {
    topic: String,
    #[serde(default)]
    t: i64,
    after: Option<i64>,
}

/// The video packets that a decoder needs to show a topic as of a time.
async fn video_packets(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<OfVideo>,
) -> Response {
    answered(&app, &connection, move |app, reply| {
        reply.set_binary();
        video::packets(app, reply, &asked.topic, asked.t, asked.after)
    })
    .await
}

/// The sound of a topic.
async fn sound_packets(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<OfTopic>,
) -> Response {
    answered(&app, &connection, move |app, reply| {
        reply.set_binary();
        sound::packets(app, reply, &asked.topic)
    })
    .await
}

#[derive(Deserialize)]
struct OfAsset {
    uri: String,
}

/// A mesh or a texture of the robot's description, from the folders in the options.
async fn asset(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<OfAsset>,
) -> Response {
    answered(&app, &connection, move |app, reply| {
        reply.set_binary();
        assets::send(&app.assets, &asked.uri, app.limits.asset_bytes, reply)
    })
    .await
}

#[derive(Deserialize)]
struct OfQuery {
    query: String,
    limit: Option<usize>,
}

/// The result of a query. The query ends when the client disconnects.
async fn sql(
    State(app): Shared,
    Extension(connection): Connected,
    Query(asked): Query<OfQuery>,
) -> Response {
    let Some((engine, turns)) = &app.queries else {
        return wrong(
            "this server is built without SQL; the ready-made packages have it, or build it with --features sql",
        );
    };
    let rows = asked.limit.unwrap_or(MOST_ROWS).min(MOST_ROWS);
    let most = app.waiting.share(app.limits.answer_bytes);
    let (limits, _give_up) = QueryLimits::new(rows, most, app.start);
    let turn = Arc::clone(turns).acquire_owned().await;
    // Its rows, and then their text.
    let Some(mut room) = connection.reserve(2 * most).await else {
        return failed(&app, Failure::NoRoom);
    };
    let engine = Arc::clone(engine);
    let work = move || {
        // A cancelled query keeps its turn until it has noticed.
        let _turn = turn;
        engine.answer(&asked.query, &limits).map(|answer| {
            let text = answer.to_json();
            room.resize(text.len());
            room.hold(text.into())
        })
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Ok(Err(refusal)) => wrong(refusal.to_string()),
        Err(error) => broken(&error),
    }
}
