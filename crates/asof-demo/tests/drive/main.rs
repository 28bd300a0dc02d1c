//! What the robot says must agree with itself and with the house.

mod form;
mod reader;
mod sense;
