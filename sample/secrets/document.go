package secrets

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/apiversion"
	"dbcontroller.dev/apiversion/protodoc"
)

// sparse are the fields that a document has only where they say something. An expiry of 0
// is no time that could be converted, an empty owner does not split, and an empty name
// refers to nothing: so the lens never sees them.
var sparse = []string{"expires_at", "owner", "owner_team", "owner_person", "replaces"}

// document is the document of a new record.
func document(name string, m proto.Message) (bson.Raw, error) {
	doc, err := protodoc.MarshalID(name, m)
	if err != nil {
		return nil, apiversion.RequestError(err)
	}
	return withoutEmpty(doc)
}

// merged is the document with what m says in it; what m does not know stays.
func merged(doc bson.Raw, m proto.Message) (bson.Raw, error) {
	out, err := protodoc.Merge(doc, m)
	if err != nil {
		return nil, apiversion.RequestError(err)
	}
	return withoutEmpty(out)
}

// withoutEmpty leaves out the sparse fields that say nothing.
func withoutEmpty(doc bson.Raw) (bson.Raw, error) {
	elements, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	out := make(bson.D, 0, len(elements))
	for _, e := range elements {
		v := e.Value()
		text, isText := v.StringValueOK()
		number, isNumber := v.AsInt64OK()
		empty := isText && text == "" || isNumber && number == 0
		if !empty || !slices.Contains(sparse, e.Key()) {
			out = append(out, bson.E{Key: e.Key(), Value: v})
		}
	}
	return bson.Marshal(out)
}
