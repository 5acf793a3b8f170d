package redislock

// ResizeScript is the script of Resize, for tests that lose its answer.
var ResizeScript = resizeScript
