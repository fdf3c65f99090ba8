package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/internal/base/rawdoc"
	"dbcontroller.dev/record"
)

// Concealed gives a server's error a text that quotes no document. A duplicate key error quotes the
// key, a validator or a geographic index quotes the document, and a missing privilege quotes the
// whole command. Other errors stay as they are.
func Concealed(err error) error {
	if err == nil {
		return nil
	}
	var server mongo.ServerError
	var done *record.ConcealedError
	// Not an answer of the server, or concealed already.
	if !errors.As(err, &server) || errors.As(err, &done) {
		return err
	}
	dropDeep(err)
	return &record.ConcealedError{Err: err, Text: record.Conceal(err.Error())}
}

// dropDeep is shallow for the details in an error.
func dropDeep(err error) {
	var exception mongo.WriteException
	if errors.As(err, &exception) {
		for i := range exception.WriteErrors {
			we := &exception.WriteErrors[i]
			we.Details = shallow(we.Details)
		}
	}
}

// shallow returns nil for details with too many levels. The driver makes the text of an error of them
// recursively.
func shallow(details bson.Raw) bson.Raw {
	if rawdoc.DocTooDeep(details) {
		return nil
	}
	return details
}

// GeoCodes are the error codes for a value that a geographic index cannot hold.
var GeoCodes = []int{16755, 16804, 16756, 13027, 13026}

// RefusedText explains why a server refuses a document: the code, and the server's message up to
// where it may quote a value.
func RefusedText(we mongo.WriteError) string {
	const values = "{[\"'`:0123456789"
	// Protect the apostrophe in words like "can't", which is no quote of a value.
	said := strings.ReplaceAll(we.Message, "n't ", "n\u2019t ")
	for rest, ok := said, true; ok; _, rest, ok = strings.Cut(said, " :: caused by :: ") {
		said = rest // skip the parts of the server that the error passed
	}
	if i := strings.IndexAny(said, values); i >= 0 {
		said = said[:i]
	}
	text := fmt.Sprintf("error %d", we.Code)
	if said = strings.TrimSpace(strings.ReplaceAll(said, "\u2019", "'")); said != "" {
		text += ": " + said
	}
	return text
}

// RefusedError is the refusal of a document. The server's own words are in it for users who may see
// values.
func RefusedError(what string, we mongo.WriteError) error {
	we.Details = shallow(we.Details)
	return &record.ConcealedError{
		Err:  fmt.Errorf("%s: error %d: %w", what, we.Code, we),
		Text: what + ": " + RefusedText(we),
	}
}

// InvalidError is the refusal of a document by a validator. It names the fields that do not fit and
// the rule, taken from the server's errInfo.
func InvalidError(what string, we mongo.WriteError) error {
	we.Details = shallow(we.Details)
	text := what + ": the collection's validator refuses the document"
	if fields := unfit(we.Details, "", 0); len(fields) > 0 {
		text += ": " + strings.Join(fields, ", ")
	}
	return &record.ConcealedError{Err: fmt.Errorf("%s: %w", text, we), Text: text}
}

// unfit returns the paths of the fields that failed a validation. The names come from the
// validator, except for additional fields, which are in the document only.
func unfit(details bson.Raw, path string, depth int) []string {
	const deepest, most = 50, 20
	if depth > deepest {
		return nil
	}
	name, _ := details.Lookup("propertyName").StringValueOK()
	if name != "" {
		path = strings.TrimPrefix(path+"."+name, ".")
	}
	elems, err := details.Elements()
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range elems {
		switch e.Key() {
		// These elements quote values of the document.
		case "specifiedAs", "consideredValue", "consideredValues", "consideredType", "additionalProperties":
			continue
		case "missingProperties":
			if list, ok := e.Value().ArrayOK(); ok {
				values, _ := list.Values()
				for _, v := range values {
					// StringValue panics at another type, which a proxy or a newer server may send.
					if name, ok := v.StringValueOK(); ok {
						found = append(found, strings.TrimPrefix(path+"."+name, ".")+" is missing")
					}
				}
			}
			continue
		}
		switch v := e.Value(); v.Type {
		case bson.TypeEmbeddedDocument:
			found = append(found, unfit(v.Value, path, depth+1)...)
		case bson.TypeArray:
			values, _ := bson.Raw(v.Value).Values()
			for _, item := range values {
				if doc, ok := item.DocumentOK(); ok {
					found = append(found, unfit(doc, path, depth+1)...)
				}
			}
		}
	}
	// Only the innermost rule names the field precisely.
	if rule, ok := details.Lookup("operatorName").StringValueOK(); ok && len(found) == 0 && path != "" && rule != "properties" {
		found = append(found, path+" ("+rule+")")
	}
	slices.Sort(found)
	found = slices.Compact(found)
	return found[:min(len(found), most)]
}

// Located adds the possible fields to a refusal, if its code comes from a geographic index. The
// server does not name the index.
func (n *Conn) Located(ctx context.Context, coll string, code int, err error) error {
	if !slices.Contains(GeoCodes, code) {
		return err
	}
	listed, listErr := n.ListIndexes(ctx, record.Token{Name: coll})
	if listErr != nil {
		return err // the refusal without the fields is good enough
	}
	// An index of another type cannot have refused the value.
	var fields []string
	for _, ix := range listed {
		key, _ := ix.Spec.Lookup("key").DocumentOK()
		elems, _ := key.Elements()
		for _, e := range elems {
			if kind, ok := e.Value().StringValueOK(); ok && strings.HasPrefix(kind, "2d") {
				fields = append(fields, e.Key()+" (index "+ix.Name+")")
			}
		}
	}
	if len(fields) == 0 {
		return err
	}
	return fmt.Errorf("%w, field %s", err, strings.Join(fields, " or "))
}
