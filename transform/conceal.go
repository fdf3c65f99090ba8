package transform

import (
	"errors"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller/record"
)

// Conceal returns err with a text that shows no value of the records; nil for nil. Errors of
// transformers go through here before anybody else sees them: they are stored where people
// read who may not read the data, and the author of a transformer quotes what it was given.
func Conceal(err error, groups ...Group) error {
	if err == nil {
		return nil
	}
	var docs []bson.Raw
	for _, g := range groups {
		for _, r := range g.Records {
			docs = append(docs, r.Doc)
		}
	}
	text, stack := err.Error(), ""
	var p *panicError
	if errors.As(err, &p) {
		if i := strings.LastIndex(text, p.stack); i >= 0 {
			text, stack = text[:i], text[i:]
		}
	}
	return &record.ConcealedError{Err: err, Text: record.Conceal(text, docs...) + stack}
}

// panicError is a panic of a transformer.
type panicError struct {
	text  string
	stack string
}

func (e *panicError) Error() string { return "panic: " + e.text + "\n" + e.stack }
