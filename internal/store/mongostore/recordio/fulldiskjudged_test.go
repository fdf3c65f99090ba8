package recordio

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/store/mongostore/conn"
)

// TestFullDiskIsJudged: a document that found no room is neither refused nor written.
func TestFullDiskIsJudged(t *testing.T) {
	t.Parallel()
	// As the answer for one of the documents that a command writes.
	if v, err := Judge("load", mongo.WriteError{Code: conn.CodeOutOfDiskSpace}); v != failed || err == nil {
		t.Errorf("the document is judged as %d: %v", v, err)
	}
}
