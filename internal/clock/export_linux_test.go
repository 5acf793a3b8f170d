package clock

// Asleep compares the clocks that read reads.
var Asleep = asleep
