package pipe

// MaxInFlight is maxInFlight, for tests outside the package.
const MaxInFlight = maxInFlight
