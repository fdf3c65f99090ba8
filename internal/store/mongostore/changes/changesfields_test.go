package changes

import "dbcontroller.dev/record"

// SetMost bounds the bytes that a stream keeps of one transaction.
func SetMost(s record.Stream, most int) { s.(*stream).most = most }
