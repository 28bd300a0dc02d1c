//! Conversions to and from glam.

use glam::{DAffine3, DQuat, DVec3};
use nalgebra::{Isometry3, Quaternion, Translation3, UnitQuaternion};

use crate::answers::{LatestTransform, Newest};

/// A transform in glam's types.
pub trait ToGlam {
    /// Rotation and translation.
    fn to_glam(&self) -> (DQuat, DVec3);

    /// The affine map.
    fn to_daffine3(&self) -> DAffine3 {
        let (rotation, translation) = self.to_glam();
        DAffine3::from_rotation_translation(rotation, translation)
    }
}

impl ToGlam for Isometry3<f64> {
    fn to_glam(&self) -> (DQuat, DVec3) {
        let (q, t) = (self.rotation.coords, self.translation.vector);
        (
            DQuat::from_xyzw(q.x, q.y, q.z, q.w),
            DVec3::new(t.x, t.y, t.z),
        )
    }
}

impl ToGlam for LatestTransform {
    fn to_glam(&self) -> (DQuat, DVec3) {
        self.isometry.to_glam()
    }
}

impl ToGlam for Newest {
    fn to_glam(&self) -> (DQuat, DVec3) {
        self.isometry.to_glam()
    }
}

/// An isometry from a rotation and a translation of glam.
pub fn from_glam(rotation: DQuat, translation: DVec3) -> Isometry3<f64> {
    let [x, y, z, w] = rotation.to_array();
    Isometry3::from_parts(
        Translation3::from(translation.to_array()),
        UnitQuaternion::new_unchecked(Quaternion::new(w, x, y, z)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_goes_to_the_same_place_in_both() {
        let isometry = Isometry3::from_parts(
            Translation3::new(1.0, 2.0, 3.0),
            UnitQuaternion::from_euler_angles(0.1, 0.2, 0.3),
        );
        let theirs = isometry
            .to_daffine3()
            .transform_point3(DVec3::new(4.0, 5.0, 6.0));
        let ours = isometry * nalgebra::Point3::new(4.0, 5.0, 6.0);
        assert!((theirs - DVec3::new(ours.x, ours.y, ours.z)).length() < 1e-14);
        let (rotation, translation) = isometry.to_glam();
        assert_eq!(from_glam(rotation, translation), isometry);
    }
}
