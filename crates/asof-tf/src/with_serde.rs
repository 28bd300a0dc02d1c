//! serde support for updates and results: stamps as integer nanoseconds, translation as `[x, y, z]`,
//! rotation as `[x, y, z, w]`.

use asof_core::Stamp;
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::answers::LatestTransform;
use crate::name::FrameName;
use crate::observe::Update;

#[derive(Serialize, Deserialize)]
struct Plain {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    child: Option<String>,
    stamp: Option<i64>,
    translation: [f64; 3],
    rotation: [f64; 4],
}

impl Plain {
    fn new(stamp: Option<Stamp>, isometry: &Isometry3<f64>) -> Self {
        Plain {
            parent: None,
            child: None,
            stamp: stamp.map(Stamp::nanos),
            translation: isometry.translation.vector.into(),
            rotation: isometry.rotation.coords.into(),
        }
    }

    /// The numbers are checked where an update is stored, not here.
    fn isometry(&self) -> Isometry3<f64> {
        let [x, y, z, w] = self.rotation;
        Isometry3::from_parts(
            Translation3::from(self.translation),
            UnitQuaternion::new_unchecked(Quaternion::new(w, x, y, z)),
        )
    }
}

impl Serialize for Update {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plain = Plain {
            parent: Some(self.parent.to_string()),
            child: Some(self.child.to_string()),
            ..Plain::new(self.stamp, &self.isometry)
        };
        plain.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Update {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let plain = Plain::deserialize(deserializer)?;
        let missing = |name: &'static str| serde::de::Error::missing_field(name);
        let name = |text: &Option<String>, field| {
            let text = text.as_deref().ok_or_else(|| missing(field))?;
            FrameName::new(text).map_err(serde::de::Error::custom)
        };
        Ok(Update {
            parent: name(&plain.parent, "parent")?,
            child: name(&plain.child, "child")?,
            stamp: plain.stamp.map(Stamp::from_nanos),
            isometry: plain.isometry(),
        })
    }
}

impl Serialize for LatestTransform {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Plain::new(self.stamp, &self.isometry).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LatestTransform {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let plain = Plain::deserialize(deserializer)?;
        Ok(LatestTransform {
            stamp: plain.stamp.map(Stamp::from_nanos),
            isometry: plain.isometry(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_goes_to_json_and_back() {
        let update = Update {
            parent: FrameName::new("odom").expect("a name"),
            child: FrameName::new("base").expect("a name"),
            stamp: Some(Stamp::from_nanos(7)),
            isometry: Isometry3::translation(1.0, 2.0, 3.0),
        };
        let text = serde_json::to_string(&update).expect("serializes");
        let wanted = r#"{"parent":"odom","child":"base","stamp":7,"translation":[1.0,2.0,3.0],"rotation":[0.0,0.0,0.0,1.0]}"#;
        assert_eq!(text, wanted);
        assert_eq!(
            serde_json::from_str::<Update>(&text).expect("parses"),
            update
        );
        let nameless = r#"{"parent":"odom","stamp":7,"translation":[1,2,3],"rotation":[0,0,0,1]}"#;
        assert!(serde_json::from_str::<Update>(nameless).is_err());
    }
}
