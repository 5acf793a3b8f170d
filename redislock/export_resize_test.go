package redislock

// ResizeScript is the script of Resize, for tests that lose its answer.
var ResizeScript = resizeScript

// ResizeArgs is how many arguments it has when it changes something.
const ResizeArgs = 4
