//! Table functions over `latest_at`: what was known as of an instant.

use std::sync::Arc;

use asof_core::{Batch, Stamp, Topics, When};
use asof_decode::{Decoder, Projection};
use datafusion::arrow::array::{
    ArrayRef, DurationNanosecondArray, RecordBatch, StringArray, TimestampNanosecondArray,
};
use datafusion::arrow::compute::concat_batches;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::Expr;

use crate::assemble::{Assembler, Shape, external};
use crate::catalogue::table;
use crate::database::Shared;
use crate::pushdown::Pushdown;
use crate::recordings::Chosen;
use crate::topic::{LOG_TIME, PUBLISH_TIME, RECORDING, TopicTable};

/// The function that `"/odom" FOR SYSTEM_TIME AS OF '…'` becomes.
pub(crate) const AS_OF: &str = "__as_of";

pub(crate) fn register(context: &SessionContext, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    context.register_udtf("at", Arc::new(At(Arc::clone(&shared))));
    context.register_udtf(AS_OF, Arc::new(AsOf(shared)));
}

/// `at('…')`: the last message of every topic, as JSON.
#[derive(Debug)]
struct At(Arc<Shared>);

impl TableFunctionImpl for At {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let [at] = args.exprs() else {
            return plan_err!("at takes one time: at('+12.5s')");
        };
        let at = time_of(at)?;
        let (mut names, mut topics, mut types, mut data) = (vec![], vec![], vec![], vec![]);
        let (mut logged, mut published, mut ages) = (vec![], vec![], vec![]);
        let mut chosen = self.0.select(None, &Pushdown::default(), &[], None)?;
        self.0.retain_readable(&mut chosen, |one| one.place);
        for one in chosen {
            let opened = self.0.opened(one.place);
            let at = at.resolve(opened.range());
            let known = opened
                .recording
                .latest_at(&Topics::All, at)
                .map_err(external)?;
            for message in known.iter() {
                let decoded = Decoder::new(message.channel, &Projection::All, &[message.payload])
                    .map_err(|error| error.to_string())
                    .and_then(|mut decoder| {
                        decoder
                            .json(message.payload)
                            .map_err(|error| error.to_string())
                    });
                names.push(opened.name.clone());
                topics.push(message.channel.topic.clone());
                types.push(message.channel.type_name().to_owned());
                logged.push(message.log_time.nanos());
                published.push(message.publish_time.nanos());
                ages.push(at.since(message.log_time));
                data.push(decoded.ok());
            }
        }
        let times = |values: Vec<i64>| -> ArrayRef {
            Arc::new(TimestampNanosecondArray::from(values).with_timezone("UTC"))
        };
        let texts = |values: Vec<String>| -> ArrayRef { Arc::new(StringArray::from(values)) };
        let batch = RecordBatch::try_from_iter([
            (RECORDING, texts(names)),
            ("topic", texts(topics)),
            ("type", texts(types)),
            (LOG_TIME, times(logged)),
            (PUBLISH_TIME, times(published)),
            (
                "age",
                Arc::new(DurationNanosecondArray::from(ages)) as ArrayRef,
            ),
            ("data", Arc::new(StringArray::from(data)) as ArrayRef),
        ])?;
        table(batch)
    }
}

/// One topic as of an instant: the newest message of all recordings, or where the instant is relative, that of each.
#[derive(Debug)]
struct AsOf(Arc<Shared>);

impl TableFunctionImpl for AsOf {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let [topic, at] = args.exprs() else {
            return plan_err!("FOR SYSTEM_TIME AS OF takes one time");
        };
        let Some(name) = text_of(topic) else {
            return plan_err!("FOR SYSTEM_TIME AS OF needs the name of a topic");
        };
        let name = self.0.topic_of(&name)?;
        let when = time_of(at)?;
        // A relative time is another one in each recording, and has a row for each.
        let is_of_all = !matches!(when, When::At(_));
        let mut all = Vec::new();
        let topic = TopicTable::new(&self.0, &name, &mut |_| {})?;
        let mut newest: Option<(Stamp, RecordBatch)> = None;
        for Chosen { place, .. } in topic.chosen(&Pushdown::default(), &[], None)? {
            let opened = self.0.opened(place);
            let at = when.resolve(opened.range());
            let topics = Topics::named([&name]);
            let known = opened.recording.latest_at(&topics, at).map_err(external)?;
            let Some(message) = known.get(0) else {
                continue;
            };
            if is_of_all {
                all.push(row(&topic, place, &known)?);
            } else if newest
                .as_ref()
                .is_none_or(|(time, _)| *time < message.log_time)
            {
                newest = Some((message.log_time, row(&topic, place, &known)?));
            }
        }
        all.extend(newest.map(|(_, batch)| batch));
        table(concat_batches(&topic.schema, &all)?)
    }
}

/// The first message of a batch as a row of the topic's table.
fn row(topic: &TopicTable, recording: usize, known: &Batch) -> Result<RecordBatch> {
    let shape = Shape::with_labels(&topic.topic, Arc::clone(&topic.schema), &topic.labels);
    let mut assembler = Assembler::new(&topic.shared, recording, &shape);
    let mut rows = Vec::new();
    assembler.add(known, &known.rows()[..known.len().min(1)], &mut rows)?;
    assembler.flush(&mut rows)?;
    let empty = || RecordBatch::new_empty(Arc::clone(&topic.schema));
    Ok(rows.pop().map_or_else(empty, |rows| rows.batch))
}

/// A time in a query: a text in any of asof's forms, or a timestamp.
fn time_of(expr: &Expr) -> Result<When> {
    if let Expr::Literal(ScalarValue::TimestampNanosecond(Some(nanos), _), _) = expr {
        return Ok(When::At(Stamp::from_nanos(*nanos)));
    }
    let Some(text) = text_of(expr) else {
        return plan_err!(
            "a time is a text such as '2024-05-01T12:00:10Z' or '+12.5s', not {expr}"
        );
    };
    text.parse::<When>().or_else(|error| plan_err!("{error}"))
}

fn text_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(text) | ScalarValue::Utf8View(text), _) => text.clone(),
        _ => None,
    }
}
