//! What did the robot know, as of time t?
