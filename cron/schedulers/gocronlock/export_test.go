package gocronlock

// WallClockOf is WallClock for another clock.
var WallClockOf = wallClock
