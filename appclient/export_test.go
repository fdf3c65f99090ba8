package appclient

// OfOne is an error as a write of one document at a place has it.
func OfOne(at Place, err error) error {
	at.attempt.begins()
	at.attempt.ended(err, false)
	return err
}

// Begins is a write at a place that does not end.
func Begins(at Place) { at.attempt.begins() }
