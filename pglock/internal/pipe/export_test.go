package pipe

// MaxInFlight is maxInFlight, for tests outside the package.
const MaxInFlight = maxInFlight

// LeaveReading makes the connection's own reader leave the reading to others for a moment.
func (w *Conn) LeaveReading() { w.used.Store(true) }
