package recordio

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/record"
)

// TestLostShardIsJudged: a connection, an election, a shutdown or a lost shard refuses no document.
// Such an error says nothing about the write, wherever it comes from.
func TestLostShardIsJudged(t *testing.T) {
	t.Parallel()
	for _, code := range []int{6, 7, 82, 83, 89, 91, 133, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436} {
		we := mongo.WriteError{Code: code, Message: "lost"}
		if v, err := Judge("apply", we); v != failed || err == nil {
			t.Errorf("%d is judged as %d: %v", code, v, err)
		}
		for _, err := range []error{mongo.CommandError{Code: int32(code)}, mongo.WriteException{WriteErrors: mongo.WriteErrors{we}}} {
			if !conn.OutcomeUnknown(err) || !conn.IsUnavailable(err) || !errors.Is(conn.ClassifyWrite("write", err), record.ErrUnknown) {
				t.Errorf("%v: unknown %v, unavailable %v", err, conn.OutcomeUnknown(err), conn.IsUnavailable(err))
			}
		}
	}
	// The server cannot store these, whenever they come.
	for _, code := range []int{2, 52, conn.CodeDocumentTooLarge, conn.CodeResultTooLarge, conn.CodeValidation, conn.CodeDuplicateKey, 16755} {
		if v, _ := Judge("apply", mongo.WriteError{Code: code}); v != Refused {
			t.Errorf("%d is judged as %d", code, v)
		}
	}
}
