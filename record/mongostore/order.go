package mongostore

import "dbcontroller/record"

// compareKeys orders ids as the server's index of _id does. It is needed only where two
// collections are walked side by side.
func compareKeys(a, b record.Key) int { return record.CompareValues(a.Value(), b.Value()) }

func compareCursors(a, b record.Cursor) int {
	return record.CompareValues(cursorBound(a).value(), cursorBound(b).value())
}
