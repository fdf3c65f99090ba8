package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/record"
)

// concealed is a server's answer with a text that quotes no document: a duplicate key error
// has the key, one of a validator or a geographic index the document, and one of a missing
// privilege the whole command. Other errors, of the network and of ourselves, stay.
func concealed(err error) error {
	if err == nil {
		return nil
	}
	var server mongo.ServerError
	var done *record.ConcealedError
	if !errors.As(err, &server) || errors.As(err, &done) {
		return err
	}
	return &record.ConcealedError{Err: err, Text: record.Conceal(err.Error())}
}

// Codes of answers about a value that a geographic index does not take.
var geoCodes = []int{16755, 16804, 16756, 13027, 13026}

// refusedText is why a server refuses a document: its code, and the beginning of its
// message, up to where it may quote the document or one of its values.
func refusedText(we mongo.WriteError) string {
	const values = "{[\"'`:0123456789"
	// An apostrophe, as the server has it, is no quote.
	said := strings.ReplaceAll(we.Message, "n't ", "n\u2019t ")
	for rest, ok := said, true; ok; _, rest, ok = strings.Cut(said, " :: caused by :: ") {
		said = rest // which part of the server it went through
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

// refusedError is the refusal of a document, with the server's own words for those who may
// see values.
func refusedError(what string, we mongo.WriteError) error {
	return &record.ConcealedError{
		Err:  fmt.Errorf("%s: error %d: %w", what, we.Code, we),
		Text: what + ": " + refusedText(we),
	}
}

// invalidError is the refusal of a document by a validator: which fields do not fit, and by
// which rule, of what the server returns in errInfo.
func invalidError(what string, we mongo.WriteError) error {
	text := what + ": the collection's validator refuses the document"
	if fields := unfit(we.Details, "", 0); len(fields) > 0 {
		text += ": " + strings.Join(fields, ", ")
	}
	return &record.ConcealedError{Err: fmt.Errorf("%s: %w", text, we), Text: text}
}

// unfit finds the fields, with their paths, in the details of a failed validation. The names
// come from the validator, except where the server names fields that there are too many.
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
		case "specifiedAs", "consideredValue", "consideredValues", "consideredType", "additionalProperties":
			continue
		case "missingProperties":
			if list, ok := e.Value().ArrayOK(); ok {
				values, _ := list.Values()
				for _, v := range values {
					found = append(found, strings.TrimPrefix(path+"."+v.StringValue(), ".")+" is missing")
				}
			}
			continue
		}
		switch v := e.Value(); v.Type {
		case bson.TypeEmbeddedDocument:
			found = append(found, unfit(v.Document(), path, depth+1)...)
		case bson.TypeArray:
			values, _ := v.Array().Values()
			for _, item := range values {
				if doc, ok := item.DocumentOK(); ok {
					found = append(found, unfit(doc, path, depth+1)...)
				}
			}
		}
	}
	if rule, ok := details.Lookup("operatorName").StringValueOK(); ok && len(found) == 0 && path != "" && rule != "properties" {
		found = append(found, path+" ("+rule+")")
	}
	slices.Sort(found)
	found = slices.Compact(found)
	return found[:min(len(found), most)]
}

// located adds to a refusal the fields that it may be about, where its code shows of which
// indexes they are.
func (n *Namespace) located(ctx context.Context, coll string, code int, err error) error {
	if !slices.Contains(geoCodes, code) {
		return err
	}
	listed, listErr := n.listIndexes(ctx, record.Token{Name: coll})
	if listErr != nil {
		return err // it is good enough
	}
	var fields []string
	for _, ix := range listed {
		key, _ := ix.spec.Lookup("key").DocumentOK()
		elems, _ := key.Elements()
		for _, e := range elems {
			if kind, ok := e.Value().StringValueOK(); ok && strings.HasPrefix(kind, "2d") {
				fields = append(fields, e.Key()+" (index "+ix.name+")")
			}
		}
	}
	if len(fields) == 0 {
		return err
	}
	return fmt.Errorf("%w, field %s", err, strings.Join(fields, " or "))
}
