package cli

import (
	"strconv"
	"time"
)

// count writes a number with commas between the thousands.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := 1
	if n < 0 {
		first = 2
	}
	for i := len(s) - 3; i >= first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// millis writes a duration as short as it can be read.
func millis(ms int64) string {
	if ms < 1000 {
		return strconv.FormatInt(ms, 10) + " ms"
	}
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// span writes seconds as hours, minutes and seconds.
func span(seconds int64) string { return (time.Duration(seconds) * time.Second).String() }
