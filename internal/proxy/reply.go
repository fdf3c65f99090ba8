package proxy

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// Error codes of MongoDB that the proxy gives or looks for.
const (
	codeHostUnreachable      = 6
	codeIllegalOperation     = 20
	codeCursorNotFound       = 43
	codeNamespaceNotFound    = 26
	codeNotSupported         = 115
	codeValidation           = 121
	codeNotOnView            = 166
	codePlanKilled           = 175
	codeTimeLimit            = 50
	codeHistoryIncomplete    = 217
	codeRetired              = 241
	codeStreamHistoryLost    = 286
	codeNoSuchTransaction    = 251
	codeTransactionCommitted = 256
	codeWrongUUID            = 361
	codeWritesBlocked        = 371
	codeTransactionTooOld    = 225
	codeInvalidReadPrefers   = 9
	codeBadValue             = 2
	codeUnauthorized         = 13
	codeProtocol             = 17
	codeAuthenticationFailed = 18
	codeMechanismUnavailable = 334
	codeShutdown             = 91
)

// Labels of errors, by which drivers decide about a repetition.
const (
	labelRetryable = "RetryableWriteError"
	labelTransient = "TransientTransactionError"
	labelUnknown   = "UnknownTransactionCommitResult"
	labelResumable = "ResumableChangeStreamError"
)

var codeNames = map[int32]string{
	codeHostUnreachable: "HostUnreachable", codeIllegalOperation: "IllegalOperation", codeCursorNotFound: "CursorNotFound",
	codeNotSupported:      "CommandNotSupported",
	codeHistoryIncomplete: "IncompleteTransactionHistory", codeNoSuchTransaction: "NoSuchTransaction",
	codeTransactionTooOld: "TransactionTooOld", codeStreamHistoryLost: "ChangeStreamHistoryLost", codeTimeLimit: "MaxTimeMSExpired", codeInvalidReadPrefers: "FailedToParse",
	codeBadValue: "BadValue", codeUnauthorized: "Unauthorized", codeProtocol: "ProtocolError",
	codeAuthenticationFailed: "AuthenticationFailed", codeMechanismUnavailable: "MechanismUnavailable", codeShutdown: "ShutdownInProgress",
}

// failure is a reply that says why a command failed.
func failure(code int32, message string, labels ...string) bsoncore.Document {
	b := bsoncore.NewDocumentBuilder().AppendDouble("ok", 0).AppendString("errmsg", message).AppendInt32("code", code)
	if name := codeNames[code]; name != "" {
		b.AppendString("codeName", name)
	}
	if len(labels) > 0 {
		list := bsoncore.NewArrayBuilder()
		for _, l := range labels {
			list.AppendString(l)
		}
		b.AppendArray("errorLabels", list.Build())
	}
	return b.Build()
}

// unknown is the reply to a write that may have happened. It has no label: a driver must not repeat it.
func unknown(why string) bsoncore.Document {
	return failure(codeHistoryIncomplete, "it is not known whether this was written: "+why)
}

// success is a reply without anything to say.
func success() bsoncore.Document { return bsoncore.NewDocumentBuilder().AppendDouble("ok", 1).Build() }

// succeeded reports whether a reply has ok: 1. Errors of single documents may stand in it all the same.
func succeeded(reply bsoncore.Document) bool {
	v, err := reply.LookupErr("ok")
	if err != nil {
		return false
	}
	ok, is := v.AsInt64OK()
	return is && ok == 1
}

// codeOf returns the code of a reply that failed as a whole; 0: it did not.
func codeOf(reply bsoncore.Document) int32 {
	if succeeded(reply) {
		return 0
	}
	v, err := reply.LookupErr("code")
	if err != nil {
		return 0
	}
	code, _ := v.AsInt64OK()
	return int32(code)
}

// movedCodes are the codes of a read where the data was.
var movedCodes = []int32{codeNamespaceNotFound, codePlanKilled, codeRetired, codeNotOnView, codeWrongUUID}

// labelled reports whether a reply has an error label.
func labelled(reply bsoncore.Document, label string) bool {
	v, err := reply.LookupErr("errorLabels")
	if err != nil {
		return false
	}
	list, ok := v.ArrayOK()
	if !ok {
		return false
	}
	values, err := list.Values()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(values, func(v bsoncore.Value) bool {
		text, _ := v.StringValueOK()
		return text == label
	})
}

// repeated reports whether a server answers for a retryable write, or a part of it, that it had made before.
func repeated(reply bsoncore.Document) bool {
	_, one := reply.LookupErr("retriedStmtId")
	_, several := reply.LookupErr("retriedStmtIds")
	return one == nil || several == nil
}

// writeError is the error of one document of a write.
type writeError struct {
	index int
	code  int32
	raw   bsoncore.Document
}

// writeErrors returns the errors of single documents.
func writeErrors(reply bsoncore.Document) (out []writeError) {
	v, err := reply.LookupErr("writeErrors")
	if err != nil {
		return nil
	}
	list, ok := v.ArrayOK()
	if !ok {
		return nil
	}
	values, err := list.Values()
	if err != nil {
		return nil
	}
	for _, v := range values {
		doc, ok := v.DocumentOK()
		if !ok {
			continue
		}
		out = append(out, writeError{index: int(number(doc, "index")), code: int32(number(doc, "code")), raw: doc})
	}
	return out
}

// number returns a number of a document; 0: it has none.
func number(doc bsoncore.Document, key string) int64 {
	v, err := doc.LookupErr(key)
	if err != nil {
		return 0
	}
	n, _ := v.AsInt64OK()
	return n
}

// fenced reports whether an error may be the refusal of a fence. A validator's refusal tells which
// validator it was.
func fenced(failed bsoncore.Document) bool {
	switch code := int32(number(failed, "code")); code {
	case codeValidation:
		info, err := failed.LookupErr("errInfo", "details", "specifiedAs", "$expr", "$eq", "0")
		mark, ok := info.StringValueOK()
		return err == nil && ok && strings.HasPrefix(mark, fencePrefix)
	case codeNotOnView, codeWrongUUID, codeWritesBlocked:
		return true
	}
	return false
}

// fencePrefix begins the validator of a fence.
const fencePrefix = "dbc-fence:"

// electionCodes are the errors of a server that is no primary, or shuts down. A driver would take the proxy
// for that server, and drop its connections.
var electionCodes = []int32{91, 189, 10058, 10107, 11600, 11602, 13435, 13436}

// unelected returns a reply without the state of the member that gave it, as a router does.
func unelected(reply bsoncore.Document) (bsoncore.Document, error) {
	_, err := reply.LookupErr("topologyVersion")
	elected := err != nil && !slices.Contains(electionCodes, codeOf(reply))
	concern, err := reply.LookupErr("writeConcernError")
	inner, ok := concern.DocumentOK()
	if elected && (err != nil || !ok || !slices.Contains(electionCodes, int32(number(inner, "code")))) {
		return reply, nil
	}
	if reply, err = without(reply, "topologyVersion"); err != nil {
		return nil, err
	}
	if slices.Contains(electionCodes, codeOf(reply)) {
		if reply, err = unreached(reply); err != nil {
			return nil, err
		}
	}
	if !ok {
		return reply, nil
	}
	if slices.Contains(electionCodes, int32(number(inner, "code"))) {
		if inner, err = unreached(inner); err != nil {
			return nil, err
		}
	}
	if reply, err = without(reply, "writeConcernError"); err != nil {
		return nil, err
	}
	return with(reply, "writeConcernError", bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: inner})
}

// unreached returns an error with the code of a server that cannot be reached.
func unreached(failed bsoncore.Document) (bsoncore.Document, error) {
	failed, err := without(failed, "code", "codeName")
	if err != nil {
		return nil, err
	}
	code := bsoncore.Value{Type: bsoncore.TypeInt32, Data: bsoncore.AppendInt32(nil, codeHostUnreachable)}
	if failed, err = with(failed, "code", code); err != nil {
		return nil, err
	}
	return with(failed, "codeName", bsoncore.Value{Type: bsoncore.TypeString, Data: bsoncore.AppendString(nil, codeNames[codeHostUnreachable])})
}
