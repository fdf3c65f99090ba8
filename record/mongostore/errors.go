package mongostore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"dbcontroller.dev/record"
)

// Server error codes that this package acts on.
const (
	codeInvalidBSON         = 22
	codeNamespaceNotFound   = 26
	codeCursorNotFound      = 43
	codeNamespaceExists     = 48
	codeInvalidOptions      = 72
	codeNotImplemented      = 238
	codeMaxTimeExpired      = 50
	codeWriteConcernTimeout = 64
	codeWriteConflict       = 112
	codeValidation          = 121
	codeOplogPositionLost   = 136
	codeViewWrite           = 166
	codeQueryPlanKilled     = 175
	codeSnapshotTooOld      = 239
	codeSnapshotUnavailable = 246
	codeTransactionTooLarge = 257
	codeInvalidResumeToken  = 260
	codeChangeStreamFatal   = 280
	codeHistoryLost         = 286
	codeUUIDMismatch        = 361
	// codeTemporarilyUnavailable: the storage engine had no room for the statement, or rolled
	// the transaction back to have some. Nothing was written.
	codeTemporarilyUnavailable = 365
	codeWriteBlocked           = 371
	codeTooLargeForCache       = 388
	codeDocumentTooLarge       = 10334
	codeResultTooLarge         = 17419 // of an update
	codeDuplicateKey           = 11000
)

// classify maps an error of the driver to the errors of the contract, for commands
// whose failure leaves nothing behind: reads, and statements of a transaction that
// will not be committed. Errors with no counterpart are returned wrapped as they are.
func classify(what string, err error) error {
	err = concealed(err)
	switch {
	case err == nil:
		return nil
	case isContext(err):
		return fmt.Errorf("%s: %w", what, err)
	case hasCode(err, codeUUIDMismatch, codeQueryPlanKilled):
		return fmt.Errorf("%s: %w: %w", what, record.ErrFenced, err)
	case hasCode(err, codeTransactionTooLarge, codeTooLargeForCache):
		return fmt.Errorf("%s: %w: %w", what, errTooMuch, err)
	case hasCode(err, codeDocumentTooLarge):
		return fmt.Errorf("%s: %w: %w", what, record.ErrOversize, err)
	case hasCode(err, codeHistoryLost, codeOplogPositionLost, codeInvalidResumeToken, codeChangeStreamFatal):
		return fmt.Errorf("%s: %w: %w", what, record.ErrHistoryLost, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// classifyWrite is classify for writes outside transactions and for commits: what the
// server did not refuse in so many words may have happened.
func classifyWrite(what string, err error) error {
	if err == nil {
		return nil
	}
	if outcomeUnknown(err) {
		return fmt.Errorf("%s: %w: %w", what, record.ErrUnknown, concealed(err))
	}
	return classify(what, err)
}

// outcomeUnknown reports whether a write that failed with err may have had an effect:
// no answer came, or the answer was that a majority had not confirmed it.
func outcomeUnknown(err error) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) {
		// A context that ended, a connection that broke. Only a server that was never
		// found is certain to have done nothing, and that is not worth a distinction.
		return true
	}
	if server.HasErrorLabel("UnknownTransactionCommitResult") {
		return true
	}
	var exception mongo.WriteException
	if errors.As(err, &exception) && exception.WriteConcernError != nil {
		return true
	}
	// A server that steps down or shuts down while it works has perhaps done it.
	return mongo.IsNetworkError(err) || mongo.IsTimeout(err) || server.HasErrorLabel("RetryableWriteError")
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// hasCode reports whether the server answered with one of the codes, be it for the
// command, for one of its writes or for their write concern.
func hasCode(err error, codes ...int) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) {
		return false
	}
	return slices.ContainsFunc(codes, server.HasErrorCode)
}

// errTooMuch: a transaction was more than the server takes, or has room for, at once.
// Nothing of it was written.
var errTooMuch = fmt.Errorf("%w: the transaction is too large for the server", record.ErrOversize)

// errNoRoom: the storage engine had no room for a statement of a transaction, which is over.
var errNoRoom = errors.New("the server's cache has no room for the transaction now")

// noRoom reports whether the storage engine ended a transaction because its cache was full.
func noRoom(err error) bool {
	return err != nil && (errors.Is(err, errNoRoom) || strings.Contains(err.Error(), "oldest pinned transaction ID"))
}

// isTransient reports whether a transaction failed as a whole, without effect, and may
// simply be tried again.
func isTransient(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && server.HasErrorLabel("TransientTransactionError")
}

// duplicate describes a write that a unique index refused.
type duplicate struct {
	onID  bool
	index string // the index's name, or its pattern where the server does not name it
}

// duplicateOf reads a duplicate key error from the raw answer for a command or write.
func duplicateOf(raw bson.Raw, message string) duplicate {
	pattern, _ := raw.Lookup("keyPattern").DocumentOK()
	d := duplicate{index: pattern.String()}
	if elems, err := pattern.Elements(); err == nil && len(elems) == 1 && elems[0].Key() == "_id" {
		// A second unique index on _id alone (of another collation, say) would have
		// another name; the implicit one is always called _id_.
		d.onID = true
	}
	// "E11000 duplicate key error collection: db.c index: email_1 dup key: {...}"
	if _, rest, ok := strings.Cut(message, " index: "); ok {
		if name, _, ok := strings.Cut(rest, " dup key:"); ok {
			d.index = name
			d.onID = name == "_id_"
		}
	}
	return d
}

// conflictError is what Refused is for a unique index. The values are left out on
// purpose: errors end in logs.
func conflictError(d duplicate) error {
	return fmt.Errorf("index %s: %w", d.index, record.ErrConflict)
}

// redactError is err without the secrets of the connection string, should the driver
// quote them.
func redactError(uri string, err error) error {
	text := err.Error()
	clean := strings.ReplaceAll(text, uri, "(connection string)")
	for _, secret := range secretsOf(uri) {
		clean = strings.ReplaceAll(clean, secret, "xxxxx")
	}
	if clean == text {
		return err
	}
	return errors.New(clean)
}

// secretsOf finds passwords in a connection string without the help of a parser that
// may be what failed.
func secretsOf(uri string) []string {
	var found []string
	add := func(s string) {
		if s == "" {
			return
		}
		found = append(found, s)
		if plain, err := url.PathUnescape(s); err == nil && plain != s {
			found = append(found, plain)
		}
	}
	rest := uri
	if _, after, ok := strings.Cut(uri, "://"); ok {
		rest = after
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		if _, password, ok := strings.Cut(rest[:at], ":"); ok {
			add(password)
		}
	}
	_, query, _ := strings.Cut(rest, "?")
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		switch strings.ToLower(key) {
		case "tlscertificatekeyfilepassword", "sslclientcertificatekeypassword", "proxypassword", "authmechanismproperties":
			add(value)
		}
	}
	return found
}

func locationOf(hosts []string, database string) string {
	return "mongodb://" + strings.Join(hosts, ",") + "/" + database
}
