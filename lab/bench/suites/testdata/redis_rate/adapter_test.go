package redis_rate_test

import _ "github.com/stretchr/testify/require" // the tests of redis_rate use it
