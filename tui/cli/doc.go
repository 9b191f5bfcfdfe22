// Package cli is the command line of limpet: the tree of its commands. Each noun has a package below it.
//
// Stdout carries data and nothing else; progress, warnings, questions and errors go to stderr. Each error says what
// failed, why, and one command to run next. Input is validated whole before anything is written. The exit codes in
// package command never change their meaning.
package cli
