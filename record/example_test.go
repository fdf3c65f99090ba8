package record_test

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
)

// A key is the _id of a document. Most are texts: names of resources.
func ExampleKeyOfDoc() {
	doc, _ := bson.Marshal(bson.D{{Key: "_id", Value: "projects/home/tasks/paint"}, {Key: "title", Value: "paint"}})
	key, err := record.KeyOfDoc(doc)
	name, isText := key.Name()
	fmt.Println(name, isText, err)
	fmt.Println(key == record.StringKey("projects/home/tasks/paint"))
	// Output:
	// projects/home/tasks/paint true <nil>
	// true
}

// A write replaces a record if it still is what the writer has read. Otherwise the store answers
// ErrMismatch, and the writer reads again.
func ExampleMatchDoc() {
	read, _ := bson.Marshal(bson.D{{Key: "_id", Value: "paint"}, {Key: "title", Value: "paint"}})
	now, _ := bson.Marshal(bson.D{{Key: "_id", Value: "paint"}, {Key: "title", Value: "paint the door"}})
	write := record.Mutation{Kind: "tasks", Key: record.StringKey("paint"), Doc: now, Match: record.MatchDoc(read)}
	fmt.Println(write.Match.Holds(read), write.Match.Holds(now))
	err := fmt.Errorf("write tasks: %w", record.ErrMismatch)
	fmt.Println(errors.Is(err, record.ErrMismatch))
	// Output:
	// true false
	// true
}
