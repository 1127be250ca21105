"""Text as numbers: TF-IDF of words and character sequences, sentence encoders, and the words behind a suggestion."""

from volmin.data.text.tfidf import Tfidf

__all__ = ["Tfidf"]
