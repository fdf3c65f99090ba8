package mongostore

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// TestFullDiskIsJudged: a document that found no room is neither refused nor written.
func TestFullDiskIsJudged(t *testing.T) {
	t.Parallel()
	// As the answer for one of the documents that a command writes.
	if v, err := judge("load", mongo.WriteError{Code: codeOutOfDiskSpace}); v != failed || err == nil {
		t.Errorf("the document is judged as %d: %v", v, err)
	}
}
