package fences_test

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// TestMarksOutlastWhatPasses: a client reads by which key it writes, so that no write may fail
// because the server steps down, or takes a moment to be reached again, while marks are read.
func TestMarksOutlastWhatPasses(t *testing.T) {
	w := storetest.Unreliable(t)
	owner := record.Owner{Deployment: "d", Version: "v1"}
	if err := w.PutMark(t.Context(), record.Mark{Owner: owner, Body: storetest.Doc("mark", 1)}); err != nil {
		t.Fatal(err)
	}
	// The driver itself makes a second attempt, and no third one.
	w.FailTimes(t, 4, "find", bson.E{Key: "errorCode", Value: conn.CodePrimarySteppedDown})
	marks, err := w.Marks(t.Context())
	if err != nil || len(marks) != 1 || marks[0].Owner != owner {
		t.Errorf("marks %+v, %v", marks, err)
	}
}
