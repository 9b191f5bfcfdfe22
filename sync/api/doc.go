// Package api holds the wire types of the APIs that limpet speaks to: objects as
// typed views, labels and annotations, conditions, and CRDs. It makes no calls.
package api
